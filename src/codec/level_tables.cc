#include "codec/level_tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "codec/digest_name.h"
#include "codec/known_numbers.h"
#include "codec/number_file.h"

namespace tersum {
namespace {

constexpr size_t kFileBytesMax = 65'536;
constexpr std::string_view kKind = "table";

std::string digest_of(std::span<const float> levels) {
  std::array<std::byte, kTableLevelsMax * sizeof(float)> bytes{};
  for (size_t i = 0; i < levels.size(); ++i) store_le(bytes.data() + 4 * i, levels[i]);
  return digest_name(std::span(bytes).first(levels.size_bytes()));
}

// Everything that a table points to.
struct KeptTable {
  std::vector<float> levels;
  LevelTable view;
};

KnownNumbers<KeptTable>& known_tables() {
  static auto* const tables = new KnownNumbers<KeptTable>("tables");
  return *tables;
}

Status not_read(std::string_view name, std::string_view why) {
  return bad_number_file(kKind, name, why);
}

}  // namespace

Status check_levels(std::span<const float> levels) {
  const size_t count = levels.size();
  if (count < 2 || count > kTableLevelsMax || !std::has_single_bit(count)) {
    return invalid_argument("a table has 2, 4, 8 or 16 levels, not " + std::to_string(count));
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string level = "level " + std::to_string(i) + " (" + std::to_string(levels[i]) + ")";
    if (!(std::abs(levels[i]) <= 1)) {
      return invalid_argument(level +
                              " is not in [-1, 1]: levels are parts of the largest "
                              "magnitude of a block");
    }
    if (i > 0 && !(levels[i - 1] < levels[i])) {
      return invalid_argument(level + " does not ascend from the one before it");
    }
  }
  return {};
}

Result<std::vector<float>> parse_level_table(std::string_view name, std::string_view text) {
  std::vector<float> levels;
  levels.reserve(kTableLevelsMax);
  for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) {
    float level = 0;
    if (!read_float(word, level)) {
      return not_read(name, "holds \"" + std::string(word.substr(0, 40)) + "\", which is no level");
    }
    levels.push_back(level);
  }
  if (const Status checked = check_levels(levels); !checked.ok()) {
    return not_read(name, "is refused: " + std::string(checked.message()));
  }
  return levels;
}

namespace {

// `levels`: checked.
Result<uint16_t> keep_table(std::span<const float> levels) {
  auto made = std::make_unique<KeptTable>();
  made->levels.assign(levels.begin(), levels.end());
  // One zero, so that equal levels have equal digests.
  for (float& level : made->levels) level += 0.0F;
  made->view = {made->levels, digest_of(made->levels)};
  const std::string& digest = made->view.name;
  return known_tables().add(digest, std::move(made));
}

}  // namespace

Result<uint16_t> register_level_table(std::span<const float> levels) {
  TERSUM_RETURN_IF_ERROR(check_levels(levels));
  return keep_table(levels);
}

Result<uint16_t> find_level_table(std::string_view name) {
  if (const uint16_t number = known_tables().find(name); number != 0) return number;
  const Result<std::string> text = read_number_file(kKind, name, kFileBytesMax);
  if (!text.ok()) return text.status();
  const Result<std::vector<float>> levels = parse_level_table(name, text.value());
  if (!levels.ok()) return levels.status();
  Result<uint16_t> number = keep_table(levels.value());
  if (!number.ok()) return not_read(name, "is refused: " + std::string(number.status().message()));
  known_tables().add_file(name, number.value());
  return number;
}

const LevelTable& level_table(uint16_t number) { return known_tables().at(number).view; }

}  // namespace tersum
