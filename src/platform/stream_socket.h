// Non-blocking stream sockets: TCP, and Unix sockets of the abstract namespace that carry
// descriptors.
//
// Thread safety: any thread. Nothing here blocks. Every socket is close-on-exec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "platform/socket_address.h"
#include "platform/unique_fd.h"
#include "tersum/status.h"

namespace tersum {

// kUnavailable when the port is taken or the address is not of this host.
Result<UniqueFd> listen_tcp(const SocketAddress& address);

// The connection may still be in progress: it has succeeded when the socket is writable and
// pending_error() is 0.
Result<UniqueFd> start_connect_tcp(const SocketAddress& address);

// No delay for small messages; a peer whose host has vanished is noticed after about two minutes at
// the latest (a call's deadline is nearly always sooner).
void tune_tcp(int fd);

// A TCP socket takes no more while this much lies in it that has not left yet (what has left and is
// not acknowledged does not count). Without it the kernel takes up to 4 MB.
void limit_unsent(int fd, int bytes);

// Whether this host is connected with itself, by whatever address: then there is no wire.
bool is_loopback(int fd);

// `name` lives in the abstract namespace: no file, gone with its last descriptor.
Result<UniqueFd> listen_unix(const std::string& name);
Result<UniqueFd> connect_unix(const std::string& name);

// The next connection; an empty descriptor when there is none, kSystem when the process is out of
// descriptors or memory.
Result<UniqueFd> accept_connection(int listener);

// SO_ERROR: 0, or the errno of a failed connection.
int pending_error(int fd);

// Result of one read: bytes > 0; or 0 with `ended` or `error_number`; or 0 with neither: would
// block.
struct ReadResult {
  size_t bytes = 0;
  bool ended = false;
  int error_number = 0;
};
// Reads into `into`; on Unix sockets, descriptors that came along are appended to `descriptors`.
ReadResult read_socket(int fd, std::span<std::byte> into, std::vector<UniqueFd>* descriptors);

// Sends all of `bytes` (few, to a socket that was idle) with `descriptors`; false if it cannot be
// done at once.
bool send_at_once(int fd, std::span<const std::byte> bytes, std::span<const int> descriptors = {});

}  // namespace tersum
