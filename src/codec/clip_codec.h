// The modifier +clip:learned: one scale for all of a slice, from the largest magnitude that was
// learned to be worth coding, in place of one for each block from its largest magnitude. Until that
// clip is known to lose no more, slices have the scales of their blocks.
//
// Thread safety: codecs are immutable. Layout of a slice of n values, see docs/codecs.md:
//
//   payload   of the spec without the modifier; held: a float32 scale, and its codes
//   report    64 bytes (clip_report.h): what the next call's clip is learned from
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// `in_blocks`: of the whole spec, slices with the scales of blocks.
std::unique_ptr<Codec> make_clip_codec(const PlainSpec& spec,
                                       std::unique_ptr<const Codec> in_blocks, DataType type);

}  // namespace tersum
