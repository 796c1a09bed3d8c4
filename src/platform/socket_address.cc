#include "platform/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "platform/system_error.h"
#include "platform/unique_fd.h"

namespace tersum {
namespace {

const sockaddr_in& as_v4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& as_v6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

SocketAddress copy_address(const sockaddr* raw, socklen_t length) {
  SocketAddress address;
  std::memcpy(&address.storage, raw, length);
  address.length = length;
  return address;
}

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

AddressList look_up(const std::string& host, int flags, int* error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  *error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  return {*error == 0 ? found : nullptr, freeaddrinfo};
}

// IPv4 first: where both exist it is the one more often routed.
const addrinfo* preferred(const addrinfo* list) {
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    if (item->ai_family == AF_INET) return item;
  }
  return list;
}

// Rank of an interface's address, higher is better; 0 is useless. Link-local IPv6 addresses need a
// scope that means nothing on another host.
int usefulness(const sockaddr* raw) {
  if (raw == nullptr) return 0;
  if (raw->sa_family == AF_INET) return 3;
  if (raw->sa_family != AF_INET6) return 0;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(raw);
  return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? 1 : 2;
}

Result<SocketAddress> interface_address(const std::string& name) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) {
    return system_error(StatusCode::kSystem, "cannot list the network interfaces", errno);
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(found, freeifaddrs);
  const ifaddrs* best = nullptr;
  std::string names;
  for (const ifaddrs* item = found; item != nullptr; item = item->ifa_next) {
    const std::string_view label = item->ifa_name;
    if ((", " + names + ",").find(", " + std::string(label) + ",") == std::string::npos) {
      names += (names.empty() ? "" : ", ") + std::string(label);
    }
    if (label != name) continue;
    const int rank = usefulness(item->ifa_addr);
    if (rank > 0 && (best == nullptr || rank > usefulness(best->ifa_addr))) best = item;
  }
  if (best == nullptr) {
    return Status(StatusCode::kUnavailable,
                  "cannot listen on '" + name +
                      "': it is neither an address nor an interface with one; interfaces here: " +
                      names + "; name one of them, or leave listen_address empty");
  }
  const bool v4 = best->ifa_addr->sa_family == AF_INET;
  return copy_address(best->ifa_addr, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
}

}  // namespace

uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET6 ? as_v6(*this).sin6_port : as_v4(*this).sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  }
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return (ntohl(as_v4(*this).sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&as_v6(*this).sin6_addr);
}

bool SocketAddress::is_any() const {
  if (family() == AF_INET) return as_v4(*this).sin_addr.s_addr == INADDR_ANY;
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&as_v6(*this).sin6_addr);
}

std::string SocketAddress::host_text() const {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(raw(), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text;
}

std::string SocketAddress::to_string() const {
  const std::string port_text = std::to_string(port());
  return family() == AF_INET6 ? "[" + host_text() + "]:" + port_text
                              : host_text() + ":" + port_text;
}

Result<SocketAddress> parse_socket_address(std::string_view text) {
  const Status wrong =
      invalid_argument("'" + std::string(text) + "' is not a numeric address with a port");
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong;
  }
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || host.empty()) return wrong;
  int code = 0;
  const AddressList list = look_up(std::string(host), AI_NUMERICHOST, &code);
  if (!list) return wrong;
  SocketAddress address = copy_address(list->ai_addr, list->ai_addrlen);
  address.set_port(port);
  return address;
}

Result<SocketAddress> resolve_host(const std::string& host, uint16_t port) {
  int code = 0;
  const AddressList list = look_up(host, 0, &code);
  if (!list) {
    return Status(StatusCode::kUnavailable, "host '" + host +
                                                "' is unknown: " + gai_strerror(code) +
                                                "; check the name, or give a numeric address");
  }
  const addrinfo* best = preferred(list.get());
  SocketAddress address = copy_address(best->ai_addr, best->ai_addrlen);
  address.set_port(port);
  return address;
}

Result<SocketAddress> local_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return system_error(StatusCode::kSystem, "cannot read a socket's address", errno);
  }
  return address;
}

Result<SocketAddress> address_routing_to(const std::string& host) {
  // Connecting a datagram socket only consults the routing table; the port does not matter.
  Result<SocketAddress> target = resolve_host(host, 9);
  if (!target.ok()) return target.status();
  UniqueFd probe(socket(target->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || connect(probe.get(), target->raw(), target->length) != 0) {
    return system_error(StatusCode::kUnavailable,
                        "no local address routes to the store's host '" + host +
                            "' (set listen_address to an address of this host)",
                        errno);
  }
  Result<SocketAddress> own = local_address(probe.get());
  if (own.ok()) own->set_port(0);
  return own;
}

Result<SocketAddress> choose_listen_address(const std::string& listen_address,
                                            const std::string& store_host, uint16_t port) {
  Result<SocketAddress> chosen = Status(StatusCode::kInternal, "unset");
  int code = 0;
  if (!listen_address.empty()) {
    const AddressList list = look_up(listen_address, AI_NUMERICHOST, &code);
    chosen = list ? Result<SocketAddress>(copy_address(list->ai_addr, list->ai_addrlen))
                  : interface_address(listen_address);
  } else if (store_host.empty()) {
    chosen = resolve_host("127.0.0.1", 0);
  } else {
    chosen = resolve_host(store_host, 0);
    if (!chosen.ok()) return chosen;
    if (!chosen->is_loopback()) chosen = address_routing_to(store_host);
  }
  if (chosen.ok()) chosen->set_port(port);
  return chosen;
}

}  // namespace tersum
