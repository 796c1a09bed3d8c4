// ListSample: a list of tensors seen as one array, for ErrorSamples: as all_reduce_coalesced codes
// it, each tensor begins at a block of its own.
//
// Thread safety: pure functions. Invariant: lists of the same lengths are the same array on every
// rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tersum/communicator.h"
#include "tersum/data_type.h"

namespace tersum {

// What a tensor is filled up to a multiple of: the largest block of the codecs that "auto" chooses
// among by itself. A caller may name larger ones, whose samples then mix neighbours in a block.
inline constexpr size_t kListBlock = 128;

// Values of the array, zeros between the tensors among them.
size_t list_values(std::span<const TensorRef> tensors);

// `run_values` values of the array from each of `starts` on, which ascend, one run behind the
// other; the last ends with the array.
std::vector<std::byte> list_runs(std::span<const TensorRef> tensors, DataType type,
                                 std::span<const size_t> starts, size_t run_values);

}  // namespace tersum
