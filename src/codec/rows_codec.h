// The modifier +rows: each row of the array is coded as a slice of its own by another codec, so
// that no block, no outlier and no scale is shared by two rows.
//
// Thread safety: codecs are immutable; a thread's first combine allocates its scratch. Layout of a
// slice: the payloads of its rows, one after the other. Slices begin at row starts (block() is the
// row), so only the last row may be shorter. Scales that ranks share (shared_sums.h) follow each
// other in the same way, row by row; codecs of a number of ranks are made at its first call.
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// `row`: codes values of the type, with the rest of the spec. spec.rows > 0.
std::unique_ptr<Codec> make_rows_codec(const PlainSpec& spec, std::unique_ptr<const Codec> row);

}  // namespace tersum
