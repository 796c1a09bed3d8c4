// The exact path: values travel as they are, and what is computed is what the type itself gives.
//
// bfloat16 and float16 are summed in float32 and rounded once, at the end of each combine. Integers
// wrap; an integer average truncates toward zero. Results that are NaN are the canonical quiet NaN.
#pragma once

#include <memory>

#include "codec/codec.h"

namespace tersum {

std::unique_ptr<Codec> make_exact_codec(DataType type);

}  // namespace tersum
