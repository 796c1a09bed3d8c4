#include "platform/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "platform/unique_fd.h"

namespace tersum {
namespace {

constexpr size_t kReadBytes = 4096;

bool is_directory(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

// Gives the draft its name unless that is taken: linking fails where renaming would replace.
int name_draft(const std::string& draft, const std::string& path) {
  if (link(draft.c_str(), path.c_str()) == 0) return 0;
  const int error_number = errno;
  const bool no_links = error_number == EPERM || error_number == EOPNOTSUPP ||
                        error_number == ENOSYS || error_number == EMLINK;
  if (!no_links) return error_number;
  if (access(path.c_str(), F_OK) == 0) return EEXIST;
  return rename(draft.c_str(), path.c_str()) == 0 ? 0 : errno;
}

}  // namespace

int make_directories_above(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string directory = path.substr(0, slash);
    if (mkdir(directory.c_str(), 0777) == 0) continue;
    const int error_number = errno;
    // Above what we may write to, mkdir need not say EEXIST; and EEXIST may mean a plain file.
    if (is_directory(directory)) continue;
    return error_number == EEXIST ? ENOTDIR : error_number;
  }
  return 0;
}

int check_writable(const std::string& directory) {
  return access(directory.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

int read_small_file(const std::string& path, size_t bytes_max, std::string* contents) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno;
  contents->clear();
  std::array<char, kReadBytes> buffer;
  for (;;) {
    const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
    if (got == 0) return 0;
    if (got < 0 && errno != EINTR) return errno;
    if (got > 0) contents->append(buffer.data(), static_cast<size_t>(got));
    if (contents->size() > bytes_max) return EFBIG;
  }
}

namespace {

// Writes the contents under a new name, then lets `place` give them theirs.
int write_draft(std::string_view contents, const std::string& draft_directory,
                const std::string& path, int (*place)(const std::string&, const std::string&)) {
  std::string draft = draft_directory + "/draft-XXXXXX";
  UniqueFd fd(mkostemp(draft.data(), O_CLOEXEC));
  if (!fd) return errno;
  int error_number = write_all(fd.get(), contents);
  if (error_number == 0 && fchmod(fd.get(), 0644) != 0) error_number = errno;
  // A network file system reports a full disk, and shows the contents to others, at close.
  if (error_number == 0 && close(fd.release()) != 0) error_number = errno;
  if (error_number == 0) error_number = place(draft, path);
  unlink(draft.c_str());
  return error_number;
}

int rename_draft(const std::string& draft, const std::string& path) {
  return rename(draft.c_str(), path.c_str()) == 0 ? 0 : errno;
}

}  // namespace

int create_small_file(const std::string& path, std::string_view contents,
                      const std::string& draft_directory) {
  return write_draft(contents, draft_directory, path, name_draft);
}

int replace_small_file(const std::string& path, std::string_view contents,
                       const std::string& draft_directory) {
  return write_draft(contents, draft_directory, path, rename_draft);
}

}  // namespace tersum
