// The modifier +sparse: the largest magnitudes travel beside the payload of another codec, which
// codes what is left of them.
//
// Thread safety: codecs are immutable; a thread's first call allocates its scratch. Layout of a
// slice: sections of kSectionValues (only the last may be shorter), each
//
//   entry[k]   2 bytes index in the section, 2 bytes bf16; ascending; k = ceil(count * P)
//   payload    of the section's values in the other codec, for float32 values
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// What finished sums of `ranks` contributions are coded with: room for the outliers of all of them.
PlainSpec gathered_spec(const PlainSpec& spec, uint32_t ranks);

// `dense`: codes float32, with spec's base, block and other modifiers. spec.sparse > 0.
// `type`: float32, bfloat16 or float16.
std::unique_ptr<Codec> make_sparse_codec(const PlainSpec& spec, std::unique_ptr<const Codec> dense,
                                         DataType type);

}  // namespace tersum
