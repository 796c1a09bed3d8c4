// The modifier +adaptive: small blocks where values are of different sizes and large ones where
// they are alike. Scales take a byte each instead of two; so for the bytes that the spec's block
// would spend there are almost twice as many blocks, and the message keeps its length.
//
// Thread safety: codecs are immutable; a thread's first call allocates its scratch. Layout of a
// section (sectioned_codec.h) of m values that is cut into L blocks, see docs/codecs.md:
//
//   exponents  ceil(m / 1,024) bytes
//   cuts       2 L bits; ceil(L / 4) bytes
//   steps      L bytes
//   codes      as of a slice of the format
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// The least block and the largest.
inline constexpr uint32_t kAdaptiveLeast = 32;
inline constexpr uint32_t kAdaptiveMost = 1024;

// `smallest`: the format of float32 in blocks of kAdaptiveLeast. `type`: float32, bfloat16 or
// float16.
std::unique_ptr<Codec> make_adaptive_codec(const PlainSpec& spec, const ElementFormat& smallest,
                                           DataType type);

}  // namespace tersum
