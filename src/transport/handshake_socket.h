// HandshakeSocket: one connection until it is part of a link.
//
// Thread safety: none (progress role). Invariant: reads not one byte beyond the frame it waits for.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "platform/poller.h"
#include "platform/shared_memory.h"
#include "platform/unique_fd.h"
#include "transport/arena.h"
#include "transport/link.h"
#include "wire/handshake.h"

namespace tersum {

// What both directions of connecting share; lives as long as the transport.
struct HandshakeContext {
  ProcessId self;
  Poller* poller = nullptr;
  const Clock* clock = nullptr;
  Random* random = nullptr;
  Arena* arena = nullptr;
  int doorbell = -1;
};

// A connection, or several, that became a link's.
struct Established {
  ProcessId peer;
  Carrier carrier = Carrier::kTcp;
  std::vector<UniqueFd> sockets;
  // Shared memory only.
  SharedMemory own_mailbox;
  SharedMemory peer_mailbox;
  SharedMemory peer_arena;
  UniqueFd peer_doorbell;
};

class HandshakeSocket {
 public:
  enum class Progress : uint8_t { kWaiting, kFrame, kOtherVersion, kBroken };

  HandshakeSocket(UniqueFd fd, Poller* poller);
  ~HandshakeSocket();
  HandshakeSocket(const HandshakeSocket&) = delete;
  HandshakeSocket& operator=(const HandshakeSocket&) = delete;

  // Reads on; kFrame fills `frame` and makes ready for the next one.
  Progress receive(HandshakeFrame* frame);
  // False when the connection does not take it at once.
  bool send(const HandshakeFrame& frame, std::span<const int> descriptors = {});

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const PollFlags& flags() const { return flags_; }
  // After kOtherVersion: the peer's.
  [[nodiscard]] uint16_t peer_version() const { return peer_version_; }
  // Those that came with the frames read so far.
  std::vector<UniqueFd>& descriptors() { return descriptors_; }
  UniqueFd take();

 private:
  Progress decode(HandshakeFrame* frame);

  UniqueFd fd_;
  Poller* poller_;
  PollFlags flags_;
  std::array<std::byte, kHandshakeBytes> bytes_{};
  size_t filled_ = 0;
  uint16_t peer_version_ = 0;
  std::vector<UniqueFd> descriptors_;
};

inline std::array<uint64_t, 2> to_words(const ProcessId& id) { return {id.high, id.low}; }
inline ProcessId to_process_id(const std::array<uint64_t, 2>& words) {
  return {words[0], words[1]};
}

// Takes the peer's arena, mailbox and doorbell out of what came with `frame`; kProtocol when they
// are not what the frame says.
Status take_shared_memory(const HandshakeFrame& frame, std::vector<UniqueFd>& descriptors,
                          Established* link);
// Fills `frame` with what `mailbox` and the context offer, and lists the descriptors to go along.
std::array<int, 3> offer_shared_memory(const HandshakeContext& context, const SharedMemory& mailbox,
                                       HandshakeFrame* frame);

}  // namespace tersum
