// Tables that give the enumerators of an enum their documented names, both ways.
//
// Thread safety: pure functions over constant tables. Invariant: a value that is in no table (a
// number from the wire, say) has the name "unknown", and no name means it.
#pragma once

#include <iterator>
#include <optional>
#include <span>
#include <string_view>

namespace tersum {

template <typename Enum>
struct NamedValue {
  Enum value;
  std::string_view name;
};

template <typename Enum>
std::string_view name_of(std::span<const NamedValue<Enum>> table, Enum value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "unknown";
}

template <typename Enum>
std::optional<Enum> value_named(std::span<const NamedValue<Enum>> table, std::string_view name) {
  for (const auto& entry : table) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

}  // namespace tersum
