// sum:exp: signs and exponents under one scale that all ranks share, added at random so that sums
// have no bias (Global-QSGD's exponential dithering, arXiv 2305.18627).
//
// A value becomes one of the two powers of two around it, and so does a sum of two codes. Whoever
// adds up needs all contributions side by side, and its random numbers are its own: nobody else
// adds the same.
//
// Thread safety: any thread; codecs of a number of ranks are made at its first call.
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// What is no sum (all_gather, broadcast, …) travels as int8. `type`: float32, bfloat16 or float16.
std::unique_ptr<Codec> make_exponent_sums_codec(const PlainSpec& spec, DataType type);

}  // namespace tersum
