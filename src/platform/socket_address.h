// SocketAddress: a numeric IPv4 or IPv6 address with a port, and where this process should listen.
//
// Thread safety: values; the functions may be called from any thread. resolve_host() and
// choose_listen_address() may block for a name server's time, the rest never blocks.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "tersum/status.h"

namespace tersum {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }
  [[nodiscard]] uint16_t port() const;
  void set_port(uint16_t port);
  [[nodiscard]] bool is_loopback() const;
  // 0.0.0.0 or ::
  [[nodiscard]] bool is_any() const;
  // "127.0.0.1:80", "[::1]:80"; host_text() without the port and the brackets.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] std::string host_text() const;
};

// The inverse of to_string(); kInvalidArgument for anything that is not numeric host and port.
Result<SocketAddress> parse_socket_address(std::string_view text);

// By name or number; prefers IPv4. kUnavailable when the host is unknown.
Result<SocketAddress> resolve_host(const std::string& host, uint16_t port);

// The address of `fd`'s own end.
Result<SocketAddress> local_address(int fd);

// The local address that packets to `host` leave from (nothing is sent).
Result<SocketAddress> address_routing_to(const std::string& host);

// Where to listen: `listen_address` (a numeric address or an interface name) if given; else
// loopback when `store_host` is empty or loopback; else the local address that routes to it.
// kUnavailable names what is missing and what there is.
Result<SocketAddress> choose_listen_address(const std::string& listen_address,
                                            const std::string& store_host, uint16_t port);

}  // namespace tersum
