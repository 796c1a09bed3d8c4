#include "codec/format_registry.h"

#include <array>

#include "codec/bf16_codec.h"
#include "codec/block_codec.h"
#include "codec/codec_modifiers.h"
#include "codec/element_codec.h"
#include "codec/element_formats.h"
#include "codec/exact_codec.h"
#include "codec/exponent_sums.h"
#include "codec/integer_sums.h"
#include "codec/level_tables.h"
#include "codec/paired_sums.h"

namespace tersum {
namespace {

std::unique_ptr<Codec> make_exact(const PlainSpec&, DataType type) {
  return make_exact_codec(type);
}

std::unique_ptr<Codec> make_bf16(const PlainSpec&, DataType type) { return make_bf16_codec(type); }

template <ElementFormat (*kDescribe)()>
std::unique_ptr<Codec> make_element(const PlainSpec& spec, DataType type) {
  return make_element_codec(spec, kDescribe(), type);
}

// The widths with kernels of their own; a modifier takes the general ones, whose layout is the
// same.
template <int kBits>
std::unique_ptr<Codec> make_block(const PlainSpec& spec, DataType type) {
  if (!spec.transforms() && !spec.sr && !spec.shiftadd && !spec.clip) {
    return make_block_codec(kBits, spec.block, type);
  }
  return make_element<integer_format<kBits>>(spec, type);
}

std::unique_ptr<Codec> make_table(const PlainSpec& spec, DataType type) {
  return make_element_codec(spec, table_format(level_table(spec.table).levels), type);
}

constexpr FormatRow learned_row(std::string_view name, uint8_t levels) {
  return {name, 64, 32, 1024, true, nullptr, false, levels};
}

constexpr std::array kRows = {
    FormatRow{"exact", 0, 0, 0, false, make_exact},
    FormatRow{"bf16", 0, 0, 0, false, make_bf16},
    FormatRow{"int8", 128, 32, 1024, true, make_block<8>},
    FormatRow{"int7", 128, 32, 1024, true, make_element<integer_format<7>>},
    FormatRow{"int6", 128, 32, 1024, true, make_element<integer_format<6>>},
    FormatRow{"int5", 128, 32, 1024, true, make_element<integer_format<5>>},
    FormatRow{"int4", 128, 32, 1024, true, make_block<4>},
    FormatRow{"int3", 32, 32, 1024, true, make_element<integer_format<3>>},
    FormatRow{"int2", 32, 32, 1024, true, make_element<integer_format<2>>},
    FormatRow{"int1", 32, 32, 1024, true, make_element<sign_format>},
    FormatRow{"five", 32, 32, 1024, true, make_element<five_format>},
    FormatRow{"fp8e4m3", 128, 32, 1024, true, make_element<fp8e4m3_format>},
    FormatRow{"fp8e5m2", 128, 32, 1024, true, make_element<fp8e5m2_format>},
    FormatRow{"mxfp8:e4m3", 32, 32, 32, true, make_element<mxfp8e4m3_format>},
    FormatRow{"mxfp8:e5m2", 32, 32, 32, true, make_element<mxfp8e5m2_format>},
    FormatRow{"mxfp6:e2m3", 32, 32, 32, true, make_element<mxfp6e2m3_format>},
    FormatRow{"mxfp6:e3m2", 32, 32, 32, true, make_element<mxfp6e3m2_format>},
    FormatRow{"mxfp4", 32, 32, 32, true, make_element<mxfp4_format>},
    FormatRow{"mxint8", 32, 32, 32, true, make_element<mxint8_format>},
    FormatRow{"nvfp4", 16, 16, 16, true, make_element<nvfp4_format>},
    FormatRow{"nf4", 64, 32, 1024, true, make_element<nf4_format>},
    FormatRow{"sum8", 256, 32, 1024, false, make_integer_sums_codec, true, 0, true},
    FormatRow{"sum8:tensor", 1024, 1024, 1024, false, make_tensor_sums_codec, true, 0, true},
    FormatRow{"sum:exp", 1024, 1024, 1024, false, make_exponent_sums_codec, true},
    FormatRow{"lut2", 32, 32, 1024, false, make_paired_sums_codec, true},
    FormatRow{"table", 64, 32, 1024, true, make_table},
    learned_row("kmeans:2", 2),
    learned_row("kmeans:4", 4),
    learned_row("kmeans:8", 8),
    learned_row("kmeans:16", 16),
};

constexpr size_t kLearnedRows = 4;

struct Alias {
  std::string_view name;
  std::string_view full;
  std::string_view modifier = {};
};
constexpr std::array kAliases = {Alias{"mxfp8", "mxfp8:e4m3"}, Alias{"mxfp6", "mxfp6:e2m3"},
                                 Alias{"shiftadd", "int8", "shiftadd"}};

}  // namespace

const uint8_t kTableFormat = kRows.size() - kLearnedRows - 1;

std::span<const FormatRow> format_rows() { return std::span(kRows).first(kTableFormat); }

std::span<const FormatRow> learned_rows() { return std::span(kRows).last(kLearnedRows); }

const FormatRow& format_row(const PlainSpec& spec) { return kRows[spec.format]; }

std::optional<uint8_t> find_format_row(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (i != kTableFormat && kRows[i].name == name) return static_cast<uint8_t>(i);
  }
  return {};
}

CodecSpec describe_spec(const PlainSpec& spec) {
  CodecSpec text;
  text.base = format_row(spec).name;
  if (spec.format == kTableFormat) text.base += ":" + level_table(spec.table).name;
  text.block = spec.block;
  for (const ModifierRow& row : modifier_rows()) {
    if (row.is_set(spec)) text.modifiers.push_back(row.write(spec));
  }
  return text;
}

std::string_view full_format_name(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (alias.name == name) return alias.full;
  }
  return name;
}

std::string_view implied_modifier(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (alias.name == name) return alias.modifier;
  }
  return {};
}

}  // namespace tersum
