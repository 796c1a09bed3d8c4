// Codecs of the element formats (kernels/element_format.h), with or without a Hadamard transform of
// each block.
//
// Thread safety: codecs are immutable.
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"
#include "codec/kernels/element_format.h"
#include "codec/shared_sums.h"

namespace tersum {

// `format`: as one of element_formats.h describes it. `type`: float32, bfloat16 or float16. `sums`:
// how ranks sum that agree on scales before; null: they do not.
std::unique_ptr<Codec> make_element_codec(const PlainSpec& spec, const ElementFormat& format,
                                          DataType type,
                                          std::unique_ptr<const SharedSums> sums = nullptr);

}  // namespace tersum
