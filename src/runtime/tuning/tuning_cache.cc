#include "runtime/tuning/tuning_cache.h"

#include "platform/environment.h"
#include "platform/small_file.h"
#include "runtime/group_id.h"

namespace tersum {
namespace {

constexpr size_t kFileBytesMax = 64 * 1024;

// Ends with '/'; empty when there is no place for a cache.
std::string cache_folder() {
  if (const auto folder = environment_variable("TERSUM_CACHE_DIR")) {
    return folder->empty() ? "" : *folder + "/";
  }
  if (const auto cache = environment_variable("XDG_CACHE_HOME"); cache && !cache->empty()) {
    return *cache + "/tersum/";
  }
  if (const auto home = environment_variable("HOME"); home && !home->empty()) {
    return *home + "/.cache/tersum/";
  }
  return "";
}

std::string file_name(std::string_view key) {
  return "tuning-" + std::to_string(text_digest(key)) + ".txt";
}

}  // namespace

TuningTable read_tuning_cache(std::string_view key) {
  const std::string folder = cache_folder();
  std::string text;
  if (folder.empty() || read_small_file(folder + file_name(key), kFileBytesMax, &text) != 0) {
    return {};
  }
  return TuningTable::parse(text, key);
}

void write_tuning_cache(std::string_view key, const TuningTable& table) {
  const std::string folder = cache_folder();
  if (folder.empty() || make_directories_above(folder) != 0) return;
  [[maybe_unused]] const int error_number =
      replace_small_file(folder + file_name(key), table.to_text(key), folder);
}

}  // namespace tersum
