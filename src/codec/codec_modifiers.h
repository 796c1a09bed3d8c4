// The table of modifiers: what may stand behind a format's name, "+hadamard" and its like.
//
// Thread safety: pure functions over a constant table. A new modifier is a row of
// codec_modifiers.cc, a field of PlainSpec, and the codec that reads it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "codec/format_registry.h"
#include "tersum/status.h"

namespace tersum {

struct ModifierRow {
  std::string_view name;
  // How it is written, for messages: "hadamard", "rows:N".
  std::string_view usage;
  // Enters the modifier into `spec`; `parameter` is what stands behind ':', empty if nothing does.
  // False: the parameter is not what `usage` says.
  bool (*set)(std::string_view parameter, PlainSpec& spec);
  bool (*is_set)(const PlainSpec& spec);
  // Canonical text, without '+'. Requires is_set.
  std::string (*write)(const PlainSpec& spec);
  // Why it does not compose with the format or another modifier of `spec`; empty if it does.
  std::string_view (*refusal)(const FormatRow& row, const PlainSpec& spec);
  // What set() has against a parameter, where `usage` does not say it all; null: nothing.
  Status (*explain)(std::string_view parameter) = nullptr;
  // Whether levels that were learned for values as they are, in blocks, suit what it leaves of
  // them.
  bool keeps_levels = false;
};

// In canonical order, which is the order in which they are applied: feedback, rows, sparse,
// diagonal, rotation or matrices, bits and sizes of blocks, clip, rules of the scale, rounding.
std::span<const ModifierRow> modifier_rows();

// Null if there is none of that name.
const ModifierRow* find_modifier(std::string_view name);

}  // namespace tersum
