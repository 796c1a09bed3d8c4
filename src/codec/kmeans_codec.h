// The base "kmeans:K": levels that a call site learns from its first sum, and keeps.
//
// Until then, and where nobody learns, slices are those of int8 in blocks of the same size:
// a sum in few levels would teach no others. Afterwards they are those of a table. This codec is
// the first; it knows the second for every table.
//
// Thread safety: codecs are immutable.
#pragma once

#include <cstdint>
#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// `first`: the codec of calls before there are levels.
std::unique_ptr<Codec> make_kmeans_codec(const PlainSpec& spec, std::unique_ptr<const Codec> first,
                                         DataType type);

// What slices of the spec are before there are levels.
PlainSpec first_spec(const PlainSpec& spec);

// For what is said of a codec before a call: one that learns its levels, with some. They are spread
// evenly.
const Codec& with_levels(const Codec* codec);

}  // namespace tersum
