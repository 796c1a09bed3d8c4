// The modifier +adaptive: small blocks where values are of different sizes and large ones where
// they are alike, as many in all as the spec's block would make, so that the message keeps its
// length.
//
// Thread safety: codecs are immutable; a thread's first call allocates its scratch. Layout of a
// section (sectioned_codec.h) of m values that is cut into L blocks:
//
//   cuts      2 L bits, see docs/codecs.md; ceil(L / 4) bytes
//   blocks    each a slice of its own of the format with its block
#pragma once

#include <array>
#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// 32, 64, … 1,024: what blocks there are.
inline constexpr size_t kAdaptiveSizes = 6;
inline constexpr uint32_t kAdaptiveLeast = 32;
inline constexpr uint32_t kAdaptiveMost = 1024;

// `by_size`: of float32, the format in blocks of 32 << i. `type`: float32, bfloat16 or float16.
std::unique_ptr<Codec> make_adaptive_codec(
    const PlainSpec& spec, std::array<std::unique_ptr<const Codec>, kAdaptiveSizes> by_size,
    DataType type);

}  // namespace tersum
