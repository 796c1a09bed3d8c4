// Parsing of codec specs without allocation; parse_codec_spec (codec.h) is the public form.
//
//   spec     = base [ "/" block ] *( "+" modifier )
//   base     = "exact" | "bf16" | "int8" | "int4"
//   block    = "32" | "64" | "128" | "256" | "512" | "1024"      int8 and int4 only; default 128
//   modifier = (none is known to this version)
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "tersum/status.h"

namespace tersum {

enum class CodecBase : uint8_t { kExact, kBFloat16, kInt8, kInt4 };

inline constexpr uint32_t kDefaultBlock = 128;

std::string_view codec_base_name(CodecBase base);
constexpr bool has_blocks(CodecBase base) {
  return base == CodecBase::kInt8 || base == CodecBase::kInt4;
}

// A spec in normal form: block 0 where there are none.
struct PlainSpec {
  CodecBase base = CodecBase::kExact;
  uint32_t block = 0;
};

// False if `text` is no spec; explain_spec then says why.
[[nodiscard]] bool read_spec(std::string_view text, PlainSpec& spec);
Status explain_spec(std::string_view text);

}  // namespace tersum
