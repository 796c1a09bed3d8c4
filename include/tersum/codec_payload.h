// Payloads of one codec, without a collective: for tools, tests and whoever stores what travels.
//
// Thread safety: pure functions. A payload is a slice as docs/codecs.md specifies it: it holds
// neither its spec nor its length, which the reader must know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tersum/data_type.h"
#include "tersum/status.h"

namespace tersum {

// The payload of `count` values at `values`: codec_wire_bytes(spec, count, type) bytes. A lossy
// spec with a type that it cannot serve is the exact path, as in a collective. `rounding` is the
// key of the random numbers of +sr (docs/codecs.md); other codecs ignore it. kInvalidArgument: the
// spec.
Result<std::vector<std::byte>> encode_payload(std::string_view spec, DataType type,
                                              const void* values, size_t count,
                                              uint64_t rounding = 0);

// `count` values to `values`. kInvalidArgument: the spec; a payload that is too short or too long;
// one that holds what no encoder writes (a negative or infinite scale, a code beyond the last),
// with the number of the block or value. Then `values` is untouched.
Status decode_payload(std::string_view spec, DataType type, std::span<const std::byte> payload,
                      size_t count, void* values);

}  // namespace tersum
