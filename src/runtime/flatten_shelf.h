// What a device world keeps in one piece: the saved states of several groups of devices, of
// +flatten or of +feedback.
//
// Pure functions; docs/wire-format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tersum/status.h"

namespace tersum {

// What FlattenSites::save() gave, by a digest of the group's devices.
using FlattenShelf = std::map<uint64_t, std::vector<std::byte>>;
// What FeedbackSites::save() gave, by one of the group's devices and the one whose it is.
using FeedbackShelf = std::map<uint64_t, std::vector<std::byte>>;

std::vector<std::byte> pack_shelf(const FlattenShelf& shelf);
// kInvalidArgument for bytes that pack_shelf() does not write, or that hold a damaged state.
Result<FlattenShelf> unpack_shelf(std::span<const std::byte> packed);

// The same of +feedback.
std::vector<std::byte> pack_feedback(const FeedbackShelf& shelf);
Result<FeedbackShelf> unpack_feedback(std::span<const std::byte> packed);

}  // namespace tersum
