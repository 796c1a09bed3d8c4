// lut2: codes of 2 bits under scales that all ranks share, added two streams at a time by a table,
// without decoding them.
//
// Codes stand for -3, -1, 1 and 3 halves of a step. The code of a mean of two streams is their sum
// at twice the step (kernels/pair_sum.h), so the contributions of R = 2^k ranks come in k rounds to
// one stream at R steps. Whoever adds up has all contributions side by side, or those of 2^j ranks
// that stand together: the rounds are the same.
//
// Thread safety: any thread; codecs of a number of ranks are made at its first call.
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// What is no sum (all_gather, broadcast, …) travels as 2-bit planes of the same codes, with scales.
// `type`: float32, bfloat16 or float16.
std::unique_ptr<Codec> make_paired_sums_codec(const PlainSpec& spec, DataType type);

}  // namespace tersum
