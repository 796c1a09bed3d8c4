#include "codec/codec_modifiers.h"

#include <array>

namespace tersum {
namespace {

std::string_view refuse_without_blocks(const FormatRow& row, const PlainSpec& /*spec*/) {
  return row.rotates ? "" : "the format takes no modifier: it has no blocks to transform";
}

bool set_flatten(std::string_view parameter, PlainSpec& spec) {
  spec.flatten = true;
  return parameter.empty();
}
bool is_flatten_set(const PlainSpec& spec) { return spec.flatten; }
std::string write_flatten(const PlainSpec& /*spec*/) { return "flatten"; }

bool set_hadamard(std::string_view parameter, PlainSpec& spec) {
  spec.hadamard = true;
  return parameter.empty();
}
bool is_hadamard_set(const PlainSpec& spec) { return spec.hadamard; }
std::string write_hadamard(const PlainSpec& /*spec*/) { return "hadamard"; }
std::string_view refuse_hadamard(const FormatRow& row, const PlainSpec& spec) {
  if (spec.flatten) return "flatten contains hadamard; write flatten alone";
  return refuse_without_blocks(row, spec);
}

constexpr std::array kModifiers = {
    ModifierRow{"flatten", "flatten", set_flatten, is_flatten_set, write_flatten,
                refuse_without_blocks},
    ModifierRow{"hadamard", "hadamard", set_hadamard, is_hadamard_set, write_hadamard,
                refuse_hadamard},
};

}  // namespace

std::span<const ModifierRow> modifier_rows() { return kModifiers; }

const ModifierRow* find_modifier(std::string_view name) {
  for (const ModifierRow& row : kModifiers) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace tersum
