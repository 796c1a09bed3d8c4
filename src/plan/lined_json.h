// JSON whose values remember their line, so that an error about a value can name it.
//
// Thread safety: values; the reader is a pure function. Invariants: an object's keys are in the
// order of the text and each occurs once; nothing is nested deeper than kLinedJsonDepthMax.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

inline constexpr size_t kLinedJsonDepthMax = 8;

enum class JsonKind { kNull, kBool, kNumber, kString, kArray, kObject };
// "a number", "a string", …
std::string_view json_kind_name(JsonKind kind);

struct LinedJson {
  JsonKind kind = JsonKind::kNull;
  int line = 1;
  double number = 0;              // kNumber; 0 or 1 for kBool
  std::string text;               // kString
  std::string key;                // where it is a member of an object
  std::vector<LinedJson> values;  // kArray, kObject

  // The member with that key, or null.
  [[nodiscard]] const LinedJson* find(std::string_view member) const;
};

// kInvalidArgument: "line N: …".
Result<LinedJson> read_lined_json(std::string_view text);

// "line N: <text>".
Status json_error(int line, const std::string& text);

}  // namespace tersum
