#include "platform/host_identity.h"

#include <fcntl.h>
#include <unistd.h>

#include "platform/unique_fd.h"

namespace tersum {

std::string boot_id() {
  UniqueFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  char text[64];
  const ssize_t got = read(file.get(), text, sizeof text);
  if (got <= 0) return {};
  std::string id(text, static_cast<size_t>(got));
  while (!id.empty() && (id.back() == '\n' || id.back() == ' ')) id.pop_back();
  return id;
}

std::string network_namespace_id() {
  char text[64];
  const ssize_t got = readlink("/proc/self/ns/net", text, sizeof text);
  if (got <= 0) return {};
  return std::string(text, static_cast<size_t>(got));
}

std::string host_name() {
  char text[256] = {};
  if (gethostname(text, sizeof text - 1) != 0) return {};
  return text;
}

int64_t process_number() { return getpid(); }

}  // namespace tersum
