// sum8: integers of scales that all ranks share, added as integers wherever they pass.
//
// With blocks, 127 levels on either side and 8 + ceil(log2 R) bits for sums of R codes.
// "sum8:tensor" has one scale for a whole call and floor(127 / R) levels, so that sums have 8 bits,
// too, and the sum of R largest ones does not wrap; its block is that of what is not summed, and of
// +hadamard.
//
// With +hadamard, which is linear, codes are those of transformed blocks; the sum is turned back
// once.
//
// Thread safety: any thread; codecs of a number of ranks are made at its first call.
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// What is no sum (all_gather, broadcast, …) travels as int8 of the same block. `type`: float32,
// bfloat16 or float16.
std::unique_ptr<Codec> make_integer_sums_codec(const PlainSpec& spec, DataType type);
// With one scale.
std::unique_ptr<Codec> make_tensor_sums_codec(const PlainSpec& spec, DataType type);

}  // namespace tersum
