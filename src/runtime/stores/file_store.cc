// The file store: one file per key in a directory that all ranks can reach.
//
// A value is written to a file of another name first and then linked to its own, which is atomic
// and fails when the name exists: readers never see half a value, and a key is set once whoever
// comes first. File systems without hard links get a rename instead; there, two ranks that set one
// key to different bytes in the same instant are not told apart.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "platform/cpu_relax.h"
#include "platform/system_clock.h"
#include "platform/system_error.h"
#include "platform/unique_fd.h"
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

// Makes every directory of `path` up to its last '/', as far as absent.
Status make_directories(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string directory = path.substr(0, slash);
    if (mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) {
      const int error_number = errno;
      struct stat info{};
      // Above what we may write to, mkdir need not say EEXIST.
      if (stat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
      return system_error(StatusCode::kUnavailable, "file store: cannot make " + directory,
                          error_number);
    }
  }
  return ok_status();
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return true;
}

// 0 and the contents, or the errno of the failure (ENOENT: no such file yet).
int read_file(const std::string& path, std::string* contents) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno;
  contents->clear();
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
    if (got == 0) return 0;
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    contents->append(buffer.data(), static_cast<size_t>(got));
    if (contents->size() > kStoreValueBytesMax) return EFBIG;
  }
}

class FileStore final : public Store {
 public:
  explicit FileStore(std::string directory) : directory_(std::move(directory)) {}

  Status set(std::string_view key, std::string_view value) override {
    TERSUM_RETURN_IF_ERROR(check_store_entry(key, value));
    const std::string path = path_of(key);
    TERSUM_RETURN_IF_ERROR(make_directories(path));
    std::string draft = directory_ + "/draft-XXXXXX";
    const UniqueFd fd(mkostemp(draft.data(), O_CLOEXEC));
    if (!fd) return failed("write in", directory_, errno);
    Status status;
    if (!write_all(fd.get(), value) || fchmod(fd.get(), 0644) != 0) {
      status = failed("write", draft, errno);
    } else {
      status = publish(draft, path, key, value);
    }
    unlink(draft.c_str());
    return status;
  }

  Result<std::string> wait(std::string_view key, int64_t timeout_ms) override {
    TERSUM_RETURN_IF_ERROR(check_store_key(key));
    const std::string path = path_of(key);
    const int64_t began_ns = clock_.now_ns();
    const int64_t timeout_ns = std::clamp<int64_t>(timeout_ms, 0, INT64_MAX / kNsPerMs) * kNsPerMs;
    for (int64_t pause_ns = kPollNsMin;; pause_ns = std::min(2 * pause_ns, kPollNsMax)) {
      std::string value;
      const int error_number = read_file(path, &value);
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

  // Gives the draft its name unless the key exists.
  static Status publish(const std::string& draft, const std::string& path, std::string_view key,
                        std::string_view value) {
    if (link(draft.c_str(), path.c_str()) == 0) return ok_status();
    const int error_number = errno;
    std::string present;
    const int unread = read_file(path, &present);
    if (unread == 0) {
      if (present == value) return ok_status();
      return invalid_argument("file store: key " + printable_store_key(key) + " (" + path +
                              ") already holds other bytes; keys are set once: use a fresh "
                              "directory for each run");
    }
    if (error_number == EEXIST) return failed("read", path, unread);
    const bool no_links = error_number == EPERM || error_number == EOPNOTSUPP ||
                          error_number == ENOSYS || error_number == EMLINK;
    if (!no_links) return failed("name", path, error_number);
    if (rename(draft.c_str(), path.c_str()) != 0) return failed("name", path, errno);
    return ok_status();
  }

  const SystemClock clock_{};
  const std::string directory_;
};

}  // namespace

Result<std::shared_ptr<Store>> make_file_store(const std::string& directory) {
  if (directory.empty()) return invalid_argument("a file store needs a directory");
  std::string path = directory;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  TERSUM_RETURN_IF_ERROR(make_directories(path + "/"));
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return system_error(StatusCode::kUnavailable, "file store: cannot write in " + path, errno);
  }
  return std::shared_ptr<Store>(std::make_shared<FileStore>(std::move(path)));
}

}  // namespace tersum
