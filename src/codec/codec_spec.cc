#include "codec/codec_spec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "base/name_table.h"
#include "codec/codec.h"
#include "codec/kernels/block_format.h"

namespace tersum {
namespace {

constexpr std::array<NamedValue<CodecBase>, 4> kBases = {{
    {CodecBase::kExact, "exact"},
    {CodecBase::kBFloat16, "bf16"},
    {CodecBase::kInt8, "int8"},
    {CodecBase::kInt4, "int4"},
}};

// The text cut at the grammar's marks; a missing part is empty, an empty one is too.
struct SpecParts {
  std::string_view base;
  std::string_view block;
  std::string_view modifiers;  // from the first '+' on
  bool has_block = false;
};

SpecParts cut_spec(std::string_view text) {
  SpecParts parts;
  const size_t plus = std::min(text.find('+'), text.size());
  parts.modifiers = text.substr(plus);
  const std::string_view head = text.substr(0, plus);
  const size_t slash = std::min(head.find('/'), head.size());
  parts.base = head.substr(0, slash);
  parts.has_block = slash < head.size();
  if (parts.has_block) parts.block = head.substr(slash + 1);
  return parts;
}

std::optional<uint32_t> read_block(std::string_view text) {
  uint32_t block = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, block);
  const bool whole = error == std::errc() && stop == end && !text.empty() && text.front() != '0';
  if (!whole || block < kBlockMin || block > kBlockMax || !std::has_single_bit(block)) return {};
  return block;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest_base(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower == "fp32" || lower == "f32" || lower == "float32" || lower == "none") return "exact";
  if (lower == "bfloat16") return "bf16";
  const auto* const best =
      std::min_element(kBases.begin(), kBases.end(), [&](const auto& a, const auto& b) {
        return edit_distance(lower, a.name) < edit_distance(lower, b.name);
      });
  return edit_distance(lower, best->name) <= 2 ? std::string(best->name) : std::string();
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

}  // namespace

std::string_view codec_base_name(CodecBase base) { return name_of<CodecBase>(kBases, base); }

bool read_spec(std::string_view text, PlainSpec& spec) {
  const SpecParts parts = cut_spec(text);
  const std::optional<CodecBase> base = value_named<CodecBase>(kBases, parts.base);
  if (!base.has_value() || !parts.modifiers.empty()) return false;
  spec.base = *base;
  spec.block = has_blocks(*base) ? kDefaultBlock : 0;
  if (!parts.has_block) return true;
  const std::optional<uint32_t> block = read_block(parts.block);
  if (!has_blocks(*base) || !block.has_value()) return false;
  spec.block = *block;
  return true;
}

Status explain_spec(std::string_view text) {
  constexpr std::string_view kKnown =
      "known codecs are exact, bf16, int8, int4 (int8/32 sets the "
      "block)";
  const SpecParts parts = cut_spec(text);
  const std::optional<CodecBase> base = value_named<CodecBase>(kBases, parts.base);
  if (!base.has_value()) {
    const std::string nearest = nearest_base(parts.base);
    return invalid_argument("unknown codec " + quoted(text) + ": " + std::string(kKnown) +
                            (nearest.empty() ? "" : "; did you mean " + quoted(nearest) + "?"));
  }
  if (parts.has_block && !has_blocks(*base)) {
    return invalid_argument("codec " + quoted(text) + ": " + std::string(parts.base) +
                            " has no blocks; write " + quoted(parts.base));
  }
  if (parts.has_block && !read_block(parts.block).has_value()) {
    return invalid_argument("codec " + quoted(text) + ": block " + quoted(parts.block) +
                            " is not allowed; allowed are 32, 64, 128, 256, 512, 1024");
  }
  return invalid_argument("codec " + quoted(text) + ": unknown modifier " +
                          quoted(parts.modifiers) + "; this version knows no modifiers");
}

Result<CodecSpec> parse_codec_spec(std::string_view text) {
  PlainSpec plain;
  if (!read_spec(text, plain)) return explain_spec(text);
  CodecSpec spec;
  spec.base = codec_base_name(plain.base);
  spec.block = plain.block;
  return spec;
}

std::string CodecSpec::to_string() const {
  std::string text = base;
  if (block != 0) text += "/" + std::to_string(block);
  for (const std::string& modifier : modifiers) text += "+" + modifier;
  return text;
}

}  // namespace tersum
