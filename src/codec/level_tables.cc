#include "codec/level_tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "codec/digest_name.h"
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

class LevelTables {
 public:
  Result<uint16_t> add(std::span<const float> levels) {
    TERSUM_RETURN_IF_ERROR(check_levels(levels));
    std::vector<float> kept(levels.begin(), levels.end());
    // One zero, so that equal levels have equal digests.
    for (float& level : kept) level += 0.0F;
    const std::string name = digest_of(kept);
    const std::unique_lock lock(mutex_);
    if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
    if (tables_.size() == std::numeric_limits<uint16_t>::max()) {
      return invalid_argument("this process knows 65,535 tables already; use fewer");
    }
    levels_.push_back(std::move(kept));
    tables_.push_back({levels_.back(), name});
    const auto number = static_cast<uint16_t>(tables_.size());
    numbers_.emplace(name, number);
    return number;
  }

  // 0: none.
  uint16_t find(std::string_view name) {
    const std::shared_lock lock(mutex_);
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? uint16_t{0} : found->second;
  }

  void add_name(std::string_view name, uint16_t number) {
    const std::unique_lock lock(mutex_);
    numbers_.emplace(name, number);
  }

  const LevelTable& at(uint16_t number) {
    const std::shared_lock lock(mutex_);
    TERSUM_CHECK(number >= 1 && number <= tables_.size());
    return tables_[number - size_t{1}];
  }

 private:
  std::shared_mutex mutex_;
  std::deque<std::vector<float>> levels_;  // neither moves what it holds
  std::deque<LevelTable> tables_;
  std::map<std::string, uint16_t, std::less<>> numbers_;  // by digest and by file
};

LevelTables& level_tables() {
  static auto* const tables = new LevelTables();
  return *tables;
}

Status not_read(std::string_view name, std::string_view why) {
  return bad_number_file(kKind, name, why);
}

Result<std::vector<float>> parse_levels(std::string_view name, std::string_view text) {
  std::vector<float> levels;
  levels.reserve(kTableLevelsMax);
  for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) {
    float level = 0;
    if (!read_float(word, level)) {
      return not_read(name, "holds \"" + std::string(word.substr(0, 40)) + "\", which is no level");
    }
    levels.push_back(level);
  }
  return levels;
}

}  // namespace

Result<uint16_t> register_level_table(std::span<const float> levels) {
  return level_tables().add(levels);
}

Result<uint16_t> find_level_table(std::string_view name) {
  if (const uint16_t number = level_tables().find(name); number != 0) return number;
  const Result<std::string> text = read_number_file(kKind, name, kFileBytesMax);
  if (!text.ok()) return text.status();
  const Result<std::vector<float>> levels = parse_levels(name, text.value());
  if (!levels.ok()) return levels.status();
  Result<uint16_t> number = level_tables().add(levels.value());
  if (!number.ok()) return not_read(name, "is refused: " + std::string(number.status().message()));
  level_tables().add_name(name, number.value());
  return number;
}

const LevelTable& level_table(uint16_t number) { return level_tables().at(number); }

}  // namespace tersum
