// FeedbackCodec: a codec that gives back, in the next call, what this one's coding lost.
//
// Whenever a rank codes a number, its own contribution or a sum, what the coding loses is kept at
// the value's place and added to what the rank puts in there next time. The sums of all calls
// together are then off by what is owed at the end alone. The payloads are those of the codec
// inside; only who encodes knows of it. docs/codecs.md specifies it.
//
// Thread safety: codecs are immutable; what is owed is the caller's (SlicePlace::owed).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// `inner`: the rest of `spec`, for values of `type`; `wide`: the same for float32, which sums
// without rounding to the type.
std::unique_ptr<Codec> make_feedback_codec(const PlainSpec& spec,
                                           std::unique_ptr<const Codec> inner,
                                           std::unique_ptr<const Codec> wide, DataType type);

}  // namespace tersum
