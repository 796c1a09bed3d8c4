// Parsing of codec specs without allocation; parse_codec_spec (codec.h) is the public form.
//
//   spec     = base [ "/" block ] *( "+" modifier )
//   base     = a name of format_registry.h, or an alias
//            | "table:" name, the digest or the file of level_tables.h: no '+' in it, and what
//              follows its last '/' is the block if it is a number
//   block    = a power of two that the format allows
//   modifier = name [ ":" parameter ], a row of codec_modifiers.h
//
// Thread safety: any thread. Pure but for files of tables and matrices, which are read once.
#pragma once

#include <string>
#include <string_view>

#include "codec/format_registry.h"
#include "tersum/status.h"

namespace tersum {

// False if `text` is no spec; explain_spec then says why.
[[nodiscard]] bool read_spec(std::string_view text, PlainSpec& spec);
Status explain_spec(std::string_view text);

// "exact, bf16, int8, …".
std::string known_format_names();

}  // namespace tersum
