// The table of the codecs in use, by what a spec says.
//
// Thread safety: any thread. Codecs are made at their first use and live for ever.
#pragma once

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// `type`: one that the format serves. Only the first call for one (spec, type) allocates.
const Codec& intern_codec(const PlainSpec& spec, DataType type);

}  // namespace tersum
