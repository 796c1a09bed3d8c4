// The file store: one file per key in a directory that all ranks can reach.
//
// A file appears with its contents or not at all (small_file.h), so readers never see half a value,
// and a key is set once whoever comes first.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "platform/cpu_relax.h"
#include "platform/small_file.h"
#include "platform/system_clock.h"
#include "platform/system_error.h"
#include "runtime/stores/store_protocol.h"
#include "tersum/store.h"

namespace tersum {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
// Between looks: a local rank is seen at once, a network file system is not asked to death.
constexpr int64_t kPollNsMin = kNsPerMs;
constexpr int64_t kPollNsMax = 50 * kNsPerMs;
// File names hold 255 bytes; longer escaped keys become directories.
constexpr size_t kNamePartMax = 200;

// Letters, digits, '-' and '_' stay; every other byte becomes %xx, so that no key can name another
// place. Ends in ".key"; what does not fit into one name goes into directories that end in ".part",
// which no escaped key can contain.
std::string file_name_of(std::string_view key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name;
  size_t part_begin = 0;
  for (const char c : key) {
    if (name.size() - part_begin > kNamePartMax) {
      name += ".part/";
      part_begin = name.size();
    }
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    if (plain) {
      name.push_back(c);
    } else {
      name.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
    }
  }
  return name + ".key";
}

class FileStore final : public Store {
 public:
  explicit FileStore(std::string directory) : directory_(std::move(directory)) {}

  Status set(std::string_view key, std::string_view value) override {
    TERSUM_RETURN_IF_ERROR(check_store_entry(key, value));
    const std::string path = path_of(key);
    int error_number = make_directories_above(path);
    if (error_number == 0) error_number = create_small_file(path, value, directory_);
    if (error_number == 0) return ok_status();
    if (error_number != EEXIST) return failed("write", path, error_number);
    std::string present;
    error_number = read_small_file(path, kStoreValueBytesMax, &present);
    if (error_number != 0) return failed("read", path, error_number);
    if (present == value) return ok_status();
    return invalid_argument("file store: key " + printable_store_key(key) + " (" + path +
                            ") already holds other bytes; keys are set once: use a fresh "
                            "directory for each run");
  }

  Result<std::string> wait(std::string_view key, int64_t timeout_ms) override {
    TERSUM_RETURN_IF_ERROR(check_store_key(key));
    const std::string path = path_of(key);
    const int64_t began_ns = clock_.now_ns();
    const int64_t timeout_ns = std::clamp<int64_t>(timeout_ms, 0, INT64_MAX / kNsPerMs) * kNsPerMs;
    for (int64_t pause_ns = kPollNsMin;; pause_ns = std::min(2 * pause_ns, kPollNsMax)) {
      std::string value;
      const int error_number = read_small_file(path, kStoreValueBytesMax, &value);
      if (error_number == 0) return value;
      // ESTALE: a network file system replaced what it had cached; look again.
      if (error_number != ENOENT && error_number != ESTALE) {
        return failed("read", path, error_number);
      }
      const int64_t left_ns = timeout_ns - (clock_.now_ns() - began_ns);
      if (left_ns <= 0) return late(key, timeout_ms);
      sleep_thread_ns(std::min(pause_ns, left_ns));
    }
  }

  [[nodiscard]] std::string host() const override { return {}; }

 private:
  std::string path_of(std::string_view key) const { return directory_ + "/" + file_name_of(key); }

  static Status failed(const char* action, const std::string& path, int error_number) {
    return system_error(StatusCode::kSystem,
                        std::string("file store: cannot ") + action + " " + path, error_number);
  }

  Status late(std::string_view key, int64_t timeout_ms) const {
    return {StatusCode::kTimeout,
            "file store " + directory_ + ": key " + printable_store_key(key) +
                " was not set within " + std::to_string(timeout_ms) +
                " ms: check that every rank was started, with the same size and name, and that all "
                "reach the same directory"};
  }

  const SystemClock clock_{};
  const std::string directory_;
};

}  // namespace

Result<std::shared_ptr<Store>> make_file_store(const std::string& directory) {
  if (directory.empty()) return invalid_argument("a file store needs a directory");
  std::string path = directory;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  int error_number = make_directories_above(path + "/");
  if (error_number == 0) error_number = check_writable(path);
  if (error_number != 0) {
    return system_error(StatusCode::kUnavailable,
                        "file store: cannot write in " + path +
                            "; name a directory that every rank can reach and write to",
                        error_number);
  }
  return std::shared_ptr<Store>(std::make_shared<FileStore>(std::move(path)));
}

}  // namespace tersum
