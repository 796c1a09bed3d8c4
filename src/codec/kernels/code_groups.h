// Codes of an element format to and from the wire, a group at a time, in obvious scalar code: what
// the vector kernels must agree with, and what serves partial groups. The packings are in
// docs/codecs.md.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/element_format.h"

namespace tersum {

// One group of `count` codes, which may be partial; unpacking may write kTripleGroup codes.
void pack_group(const ElementFormat& format, const uint8_t* codes, size_t count, std::byte* wire);
void unpack_group(const ElementFormat& format, const std::byte* wire, size_t count, uint8_t* codes);

}  // namespace tersum
