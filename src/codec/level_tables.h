// Level tables: levels that somebody chose for "table:…" specs, known to this process by number.
//
// A table is named by the file it stands in, or by its digest, which is what normal forms hold: 16
// hexadecimal digits, XXH3-64 of the levels as float32 in little-endian order. A file is read once.
//
// Thread safety: any thread. Invariants: tables are never changed or forgotten; two numbers name
// tables with other levels. Finding a table that is known does not allocate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

inline constexpr size_t kTableLevelsMax = 16;

struct LevelTable {
  std::span<const float> levels;  // 2, 4, 8 or 16, ascending, in [-1, 1]
  std::string name;               // the digest
};

// kInvalidArgument: they are no levels of a table, and which is wrong.
Status check_levels(std::span<const float> levels);

// The table's number, from 1 on. kInvalidArgument says which level is wrong.
Result<uint16_t> register_level_table(std::span<const float> levels);

// `name`: the digest of a registered table, or a file: levels in decimal, with white space between;
// '#' begins a comment. kInvalidArgument names the file, what is wrong with it and the remedy.
Result<uint16_t> find_level_table(std::string_view name);

// The levels of a file of that name and text; errors as above.
Result<std::vector<float>> parse_level_table(std::string_view name, std::string_view text);

// `number`: one that a function above gave.
const LevelTable& level_table(uint16_t number);

}  // namespace tersum
