#include "codec/codec_spec.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec.h"

namespace tersum {
namespace {

constexpr std::string_view kHadamard = "hadamard";

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

// The row's number.
std::optional<size_t> find_format(std::string_view name) {
  const auto rows = format_rows();
  const std::string_view full = full_format_name(name);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].name == full) return i;
  }
  return {};
}

std::optional<uint32_t> read_block(const FormatRow& row, std::string_view text) {
  uint32_t block = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, block);
  const bool whole = error == std::errc() && stop == end && !text.empty() && text.front() != '0';
  if (!whole || block < row.block_min || block > row.block_max || !std::has_single_bit(block))
    return {};
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
  const auto rows = format_rows();
  const auto best = std::min_element(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
    return edit_distance(lower, a.name) < edit_distance(lower, b.name);
  });
  return edit_distance(lower, best->name) <= 2 ? std::string(best->name) : std::string();
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// The first of "+a+b…", without its mark; what is left stays in `text`.
std::string_view take_modifier(std::string_view& text) {
  const size_t end = std::min(text.find('+', 1), text.size());
  const std::string_view modifier = text.substr(1, end - 1);
  text.remove_prefix(end);
  return modifier;
}

// False if a modifier is unknown, stands twice or does not compose with the format.
bool read_modifiers(const FormatRow& row, std::string_view text, PlainSpec& spec) {
  while (!text.empty()) {
    if (take_modifier(text) != kHadamard || !row.rotates || spec.hadamard) return false;
    spec.hadamard = true;
  }
  return true;
}

std::string allowed_blocks(const FormatRow& row) {
  if (row.block_min == row.block_max) return "it is always " + std::to_string(row.block_min);
  std::string text = "allowed are ";
  for (uint32_t block = row.block_min; block <= row.block_max; block *= 2) {
    text += (block == row.block_min ? "" : ", ") + std::to_string(block);
  }
  return text;
}

Status explain_modifiers(std::string_view spec, const FormatRow& row, std::string_view text) {
  const std::string where = "codec " + quoted(spec) + ": ";
  bool seen = false;
  while (!text.empty()) {
    const std::string_view modifier = take_modifier(text);
    if (modifier != kHadamard) {
      return invalid_argument(where + "unknown modifier " + quoted(modifier) +
                              "; known is \"hadamard\"");
    }
    if (!row.rotates) {
      return invalid_argument(where + std::string(row.name) +
                              " takes no modifier: it has no blocks to transform");
    }
    if (seen) return invalid_argument(where + "hadamard stands twice");
    seen = true;
  }
  return invalid_argument(where + "no codec");
}

}  // namespace

std::string known_format_names() {
  std::string names;
  for (const FormatRow& row : format_rows()) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

bool read_spec(std::string_view text, PlainSpec& spec) {
  const SpecParts parts = cut_spec(text);
  const std::optional<size_t> format = find_format(parts.base);
  if (!format.has_value()) return false;
  const FormatRow& row = format_rows()[*format];
  spec = {};
  spec.format = static_cast<uint8_t>(*format);
  spec.block = row.default_block;
  if (parts.has_block) {
    if (!row.has_blocks()) return false;
    const std::optional<uint32_t> block = read_block(row, parts.block);
    if (!block.has_value()) return false;
    spec.block = *block;
  }
  return read_modifiers(row, parts.modifiers, spec);
}

Status explain_spec(std::string_view text) {
  const SpecParts parts = cut_spec(text);
  const std::optional<size_t> format = find_format(parts.base);
  if (!format.has_value()) {
    const std::string nearest = nearest_base(parts.base);
    return invalid_argument("unknown codec " + quoted(text) + ": known codecs are " +
                            known_format_names() + " (int8/32 sets the block)" +
                            (nearest.empty() ? "" : "; did you mean " + quoted(nearest) + "?"));
  }
  const FormatRow& row = format_rows()[*format];
  if (parts.has_block && !row.has_blocks()) {
    return invalid_argument("codec " + quoted(text) + ": " + std::string(parts.base) +
                            " has no blocks; write " + quoted(parts.base));
  }
  if (parts.has_block && !read_block(row, parts.block).has_value()) {
    return invalid_argument("codec " + quoted(text) + ": block " + quoted(parts.block) +
                            " is not allowed; " + allowed_blocks(row));
  }
  return explain_modifiers(text, row, parts.modifiers);
}

Result<CodecSpec> parse_codec_spec(std::string_view text) {
  PlainSpec plain;
  if (!read_spec(text, plain)) return explain_spec(text);
  CodecSpec spec;
  spec.base = format_rows()[plain.format].name;
  spec.block = plain.block;
  if (plain.hadamard) spec.modifiers.emplace_back(kHadamard);
  return spec;
}

std::string CodecSpec::to_string() const {
  std::string text = base;
  if (block != 0) text += "/" + std::to_string(block);
  for (const std::string& modifier : modifiers) text += "+" + modifier;
  return text;
}

}  // namespace tersum
