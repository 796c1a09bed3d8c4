#include "platform/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace tersum {

OutputFile::~OutputFile() {
  if (!draft_.empty()) unlink(draft_.c_str());
}

int OutputFile::open(const std::string& path) {
  path_ = path;
  std::string draft = path + ".XXXXXX";
  fd_ = UniqueFd(mkostemp(draft.data(), O_CLOEXEC));
  if (!fd_) return errno;
  draft_ = std::move(draft);
  return fchmod(fd_.get(), 0644) == 0 ? 0 : errno;
}

int OutputFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd_.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

int OutputFile::finish() {
  // A network file system reports a full disk at close.
  if (close(fd_.release()) != 0) return errno;
  if (rename(draft_.c_str(), path_.c_str()) != 0) return errno;
  draft_.clear();
  return 0;
}

}  // namespace tersum
