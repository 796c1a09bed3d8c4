#include "platform/stream_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "platform/system_error.h"

namespace tersum {
namespace {

constexpr int kBacklog = 512;
constexpr size_t kDescriptorsMax = 8;

void set_option(int fd, int level, int name, int value) {
  // Tuning only: a refusal changes speed or the time to notice a dead host, never a result.
  setsockopt(fd, level, name, &value, sizeof value);
}

// Pacing (bbr's, with a timer per connection) spreads packets over a wire; on loopback there is
// none, and the timers cost a fifth of the throughput. Reno sends at once and may be chosen by
// everybody.
void unpace_loopback(int fd) {
  constexpr char kReno[] = "reno";
  if (is_loopback(fd)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno, sizeof kReno - 1);
}

socklen_t abstract_address(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  TERSUM_CHECK(name.size() + 1 <= sizeof address->sun_path);
  std::memcpy(address->sun_path + 1, name.data(), name.size());  // a leading 0: abstract
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Result<UniqueFd> new_socket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return system_error(StatusCode::kSystem, "cannot make a socket", errno);
  return fd;
}

std::string why_not_bound(int error_number) {
  if (error_number == EADDRINUSE) {
    return " (the port is taken: choose another listen_port, or 0 for any free one)";
  }
  if (error_number == EADDRNOTAVAIL) return " (this host has no such address)";
  return "";
}

}  // namespace

void limit_unsent(int fd, int bytes) { set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes); }

bool is_loopback(int fd) {
  Result<SocketAddress> here = local_address(fd);
  if (!here.ok()) return false;
  if (here->is_loopback()) return true;
  SocketAddress there;
  there.length = sizeof there.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there.storage), &there.length) != 0)
    return false;
  return here->host_text() == there.host_text();
}

Result<UniqueFd> listen_tcp(const SocketAddress& address) {
  Result<UniqueFd> fd = new_socket(address.family());
  if (!fd.ok()) return fd;
  // Lets a new listener have the port while connections of an earlier one are in TIME_WAIT.
  set_option(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd->get(), address.raw(), address.length) != 0 || listen(fd->get(), kBacklog) != 0) {
    const int error_number = errno;
    return Status(StatusCode::kUnavailable, "cannot listen on " + address.to_string() + ": " +
                                                error_text(error_number) +
                                                why_not_bound(error_number));
  }
  return fd;
}

Result<UniqueFd> start_connect_tcp(const SocketAddress& address) {
  Result<UniqueFd> fd = new_socket(address.family());
  if (!fd.ok()) return fd;
  tune_tcp(fd->get());
  if (connect(fd->get(), address.raw(), address.length) != 0 && errno != EINPROGRESS) {
    return system_error(StatusCode::kUnavailable, "cannot connect to " + address.to_string(),
                        errno);
  }
  unpace_loopback(fd->get());  // only now does the socket have an address
  return fd;
}

void tune_tcp(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // Long enough for a peer that is stopped in a debugger with its window closed; the deadlines of
  // calls report it sooner.
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 120'000);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 9);
  unpace_loopback(fd);
}

Result<UniqueFd> listen_unix(const std::string& name) {
  Result<UniqueFd> fd = new_socket(AF_UNIX);
  if (!fd.ok()) return fd;
  sockaddr_un address{};
  const socklen_t length = abstract_address(name, &address);
  if (bind(fd->get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(fd->get(), kBacklog) != 0) {
    return system_error(StatusCode::kUnavailable, "cannot listen on the Unix socket @" + name,
                        errno);
  }
  return fd;
}

Result<UniqueFd> connect_unix(const std::string& name) {
  Result<UniqueFd> fd = new_socket(AF_UNIX);
  if (!fd.ok()) return fd;
  sockaddr_un address{};
  const socklen_t length = abstract_address(name, &address);
  if (connect(fd->get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return system_error(StatusCode::kUnavailable, "cannot connect to the Unix socket @" + name,
                        errno);
  }
  return fd;
}

Result<UniqueFd> accept_connection(int listener) {
  for (;;) {
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) return fd;
    switch (errno) {
      case EAGAIN:
        return UniqueFd();
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        return system_error(StatusCode::kSystem, "cannot accept a connection", errno);
      case EBADF:
      case EINVAL:
      case ENOTSOCK:
        TERSUM_CHECK(!"accept on something that is not a listener");
        break;
      default:
        break;  // the connection died before it was accepted; look at the next
    }
  }
}

int pending_error(int fd) {
  int error_number = 0;
  socklen_t length = sizeof error_number;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &length) != 0) return errno;
  return error_number;
}

ReadResult read_socket(int fd, std::span<std::byte> into, std::vector<UniqueFd>* descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptors != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  ssize_t got = -1;
  do {
    got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return {.error_number = errno == EAGAIN ? 0 : errno};
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr;
       item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(item) + i * sizeof(int), sizeof received);
      descriptors->emplace_back(received);
    }
  }
  return {.bytes = static_cast<size_t>(got), .ended = got == 0};
}

bool send_at_once(int fd, std::span<const std::byte> bytes, std::span<const int> descriptors) {
  TERSUM_CHECK(descriptors.size() <= kDescriptorsMax);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(item), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

}  // namespace tersum
