#include "codec/codec_spec.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/codec_modifiers.h"
#include "codec/level_tables.h"

namespace tersum {
namespace {

// The text cut at the grammar's marks; a missing part is empty, an empty one is too.
struct SpecParts {
  std::string_view base;
  std::string_view block;
  std::string_view modifiers;  // from the first '+' on
  std::string_view table;      // what stands behind "table:", and is the base then
  bool has_block = false;
  bool names_table = false;
};

constexpr std::string_view kTablePrefix = "table:";
constexpr std::string_view kLearnedPrefix = "kmeans:";
// Of all modifiers that do not keep levels.
constexpr std::string_view kLearnedRefusal =
    "its levels are learned for values as they are, under their largest magnitude; it takes sparse "
    "and rows alone (nf4 has levels for what is rotated)";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

SpecParts cut_spec(std::string_view text) {
  SpecParts parts;
  const size_t plus = std::min(text.find('+'), text.size());
  parts.modifiers = text.substr(plus);
  const std::string_view head = text.substr(0, plus);
  parts.names_table = head.starts_with(kTablePrefix);
  size_t slash = std::min(head.find('/'), head.size());
  if (parts.names_table) {
    slash = std::min(head.rfind('/'), head.size());
    if (slash < head.size() && !is_number(head.substr(slash + 1))) slash = head.size();
    parts.table = head.substr(0, slash).substr(kTablePrefix.size());
  }
  parts.base = head.substr(0, slash);
  parts.has_block = slash < head.size();
  if (parts.has_block) parts.block = head.substr(slash + 1);
  return parts;
}

// The row's number.
std::optional<uint8_t> find_format(std::string_view name) {
  if (name.starts_with(kTablePrefix)) return kTableFormat;
  return find_format_row(full_format_name(name));
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
  if (lower == "kmeans") return "kmeans:16";
  std::string_view best;
  size_t least = 3;
  for (const auto rows : {format_rows(), learned_rows()}) {
    for (const FormatRow& row : rows) {
      const size_t distance = edit_distance(lower, row.name);
      if (distance >= least) continue;
      least = distance;
      best = row.name;
    }
  }
  return std::string(best);
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// The first of "+a+b…", without its mark; what is left stays in `text`.
std::string_view take_modifier(std::string_view& text) {
  const size_t end = std::min(text.find('+', 1), text.size());
  const std::string_view modifier = text.substr(1, end - 1);
  text.remove_prefix(end);
  return modifier;
}

// What is wrong with modifiers, if anything is.
enum class ModifierFault : uint8_t { kNone, kUnknown, kTwice, kParameter, kRefused };

struct ModifierFinding {
  ModifierFault fault = ModifierFault::kNone;
  std::string_view text;             // of the modifier
  const ModifierRow* row = nullptr;  // null if it is unknown
  std::string_view refusal;
};

// What stands behind the first ':'; empty if nothing does.
std::string_view parameter_of(std::string_view modifier) {
  const size_t colon = std::min(modifier.find(':'), modifier.size());
  return modifier.substr(std::min(colon + 1, modifier.size()));
}

ModifierFinding enter_modifier(std::string_view text, PlainSpec& spec) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view parameter = parameter_of(text);
  const ModifierRow* const row = find_modifier(text.substr(0, colon));
  if (row == nullptr) return {ModifierFault::kUnknown, text, nullptr, {}};
  if (row->is_set(spec)) return {ModifierFault::kTwice, text, row, {}};
  const bool colon_alone = colon < text.size() && parameter.empty();
  if (!row->set(parameter, spec) || colon_alone) return {ModifierFault::kParameter, text, row, {}};
  return {};
}

// Enters what `base` implies and "+a+b…" into `spec`.
ModifierFinding read_modifiers(const FormatRow& format, const SpecParts& parts, PlainSpec& spec) {
  const std::string_view implied = implied_modifier(parts.base);
  if (!implied.empty()) enter_modifier(implied, spec);
  std::string_view text = parts.modifiers;
  while (!text.empty()) {
    const ModifierFinding finding = enter_modifier(take_modifier(text), spec);
    if (finding.fault != ModifierFault::kNone) return finding;
  }
  for (const ModifierRow& row : modifier_rows()) {
    if (!row.is_set(spec)) continue;
    std::string_view refusal = row.refusal(format, spec);
    if (refusal.empty() && !row.keeps_levels && format.learned_levels > 0) {
      refusal = kLearnedRefusal;
    }
    if (!refusal.empty()) return {ModifierFault::kRefused, row.name, &row, refusal};
  }
  // What says nothing is not in normal form.
  if (!format.has_blocks()) spec.rows = 0;
  spec.nearest = false;
  return {};
}

std::string allowed_blocks(const FormatRow& row) {
  if (row.block_min == row.block_max) return "it is always " + std::to_string(row.block_min);
  std::string text = "allowed are ";
  for (uint32_t block = row.block_min; block <= row.block_max; block *= 2) {
    text += (block == row.block_min ? "" : ", ") + std::to_string(block);
  }
  return text;
}

std::string known_modifiers() {
  std::string names;
  for (const ModifierRow& row : modifier_rows()) {
    if (!names.empty()) names += ", ";
    names += row.usage;
  }
  return names;
}

Status explain_modifiers(std::string_view spec, const ModifierFinding& finding) {
  const std::string where = "codec " + quoted(spec) + ": ";
  const std::string what = where + "modifier " + quoted(finding.text);
  switch (finding.fault) {
    case ModifierFault::kUnknown:
      return invalid_argument(where + "unknown modifier " + quoted(finding.text) + "; known are " +
                              known_modifiers());
    case ModifierFault::kTwice:
      return invalid_argument(where + std::string(finding.row->name) + " stands twice");
    case ModifierFault::kParameter:
      if (finding.row->explain != nullptr) {
        const Status why = finding.row->explain(parameter_of(finding.text));
        if (!why.ok()) return invalid_argument(what + " is refused: " + std::string(why.message()));
      }
      return invalid_argument(what + " is written " + quoted(finding.row->usage));
    case ModifierFault::kRefused:
      return invalid_argument(what + " is refused: " + std::string(finding.refusal));
    case ModifierFault::kNone:
      break;
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
  return names + ", table:FILE, kmeans:K";
}

bool read_spec(std::string_view text, PlainSpec& spec) {
  const SpecParts parts = cut_spec(text);
  const std::optional<uint8_t> format = find_format(parts.base);
  if (!format.has_value()) return false;
  spec = {};
  spec.format = *format;
  const FormatRow& row = format_row(spec);
  spec.block = row.default_block;
  if (parts.names_table) {
    const Result<uint16_t> table = find_level_table(parts.table);
    if (!table.ok()) return false;
    spec.table = table.value();
  }
  if (parts.has_block) {
    if (!row.has_blocks()) return false;
    const std::optional<uint32_t> block = read_block(row, parts.block);
    if (!block.has_value()) return false;
    spec.block = *block;
  }
  return read_modifiers(row, parts, spec).fault == ModifierFault::kNone;
}

Status explain_spec(std::string_view text) {
  const SpecParts parts = cut_spec(text);
  const std::optional<uint8_t> format = find_format(parts.base);
  if (!format.has_value() && parts.base.starts_with(kLearnedPrefix)) {
    return invalid_argument("codec " + quoted(text) + " has 2, 4, 8 or 16 levels, not " +
                            quoted(parts.base.substr(kLearnedPrefix.size())) +
                            "; write \"kmeans:16\"");
  }
  if (parts.base == "auto" || text.starts_with("auto:")) {
    return invalid_argument("codec " + quoted(text) +
                            " is no format but a call's choice of one, by what the call moves; "
                            "name a format here");
  }
  if (!format.has_value()) {
    const std::string nearest = nearest_base(parts.base);
    return invalid_argument("unknown codec " + quoted(text) + ": known codecs are " +
                            known_format_names() + " (int8/32 sets the block)" +
                            (nearest.empty() ? "" : "; did you mean " + quoted(nearest) + "?"));
  }
  PlainSpec spec;
  spec.format = *format;
  const FormatRow& row = format_row(spec);
  if (parts.has_block && !row.has_blocks()) {
    return invalid_argument("codec " + quoted(text) + ": " + std::string(parts.base) +
                            " has no blocks; write " + quoted(parts.base));
  }
  if (parts.has_block && !read_block(row, parts.block).has_value()) {
    return invalid_argument("codec " + quoted(text) + ": block " + quoted(parts.block) +
                            " is not allowed; " + allowed_blocks(row));
  }
  spec.block = parts.has_block ? *read_block(row, parts.block) : row.default_block;
  if (parts.names_table) TERSUM_RETURN_IF_ERROR(find_level_table(parts.table).status());
  return explain_modifiers(text, read_modifiers(row, parts, spec));
}

Result<CodecSpec> parse_codec_spec(std::string_view text) {
  PlainSpec plain;
  if (!read_spec(text, plain)) return explain_spec(text);
  return describe_spec(plain);
}

std::string CodecSpec::to_string() const {
  std::string text = base;
  if (block != 0) text += "/" + std::to_string(block);
  for (const std::string& modifier : modifiers) text += "+" + modifier;
  return text;
}

}  // namespace tersum
