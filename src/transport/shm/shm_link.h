// ShmLink: a link through shared memory: payloads stay in the sender's arena and are read there.
// Arrays that a call opens are touched where they are (array_reach.h).
//
// Thread safety: none (progress role).
// Invariants: those of Link. Nothing read from the peer's memory is used before it is copied and
// checked; what does not fit ends the link (kProtocol). A payload's slot stays referenced until the
// peer has released it, has said that it reads no more, or is gone: after close(), too, so that
// bytes never change under a reader. A process that dies leaves nothing behind.
//
// Over the socket, after the handshake, single bytes travel: 'G' the sender has left, 'E' it has
// ended the link for an error, 'D' it reads the other's arena no more, and touches no arrays there.
// End of file says all of it.
#pragma once

#include <vector>

#include "transport/grow_ring.h"
#include "transport/handshake_socket.h"
#include "transport/host_link.h"
#include "transport/shm/line_distance.h"
#include "transport/shm/mailbox.h"

namespace tersum {

class ShmLink final : public HostLink, private ArrayReach {
 public:
  // `parts` is of the shared-memory carrier.
  ShmLink(const LinkContext& context, Established parts);
  ~ShmLink() override;

  [[nodiscard]] ProcessId peer() const override { return peer_; }
  [[nodiscard]] std::string_view transport() const override { return "shm"; }
  [[nodiscard]] bool far() const override;
  [[nodiscard]] ArrayReach* reach() override { return this; }
  void send(const MessageHeader& header, const SlotRef& payload) override;
  void flush() override;
  bool poll() override;
  [[nodiscard]] size_t backlog_bytes() const override { return backlog_bytes_; }
  [[nodiscard]] bool down() const override { return down_; }
  void close() override;

  bool prepare_sleep() override;
  void finish_sleep() override;
  // Room in the mailbox is looked for by poll() itself.
  [[nodiscard]] bool blocked() const override { return false; }
  [[nodiscard]] bool needs_poller() const override { return false; }
  [[nodiscard]] bool retired() const override { return down_ && !socket_; }

 private:
  struct Queued {
    MessageHeader header;
    SlotRef payload;
  };

  // Output.
  bool post(const MessageHeader& header, const SlotRef& payload);
  bool has_room(size_t units);
  Unit& next_unit();
  void post_inline(const MessageHeader& header, const SlotRef& payload);
  uint32_t issue_ticket(const SlotRef& payload);
  bool post_releases();
  bool post_queued();
  void ring_if_asleep();

  // Input.
  bool take_units();
  bool take_unit(uint64_t available);
  bool take_message(const Unit& unit);
  bool take_inline(const Unit& unit, uint64_t available);
  bool take_releases(const Unit& unit);
  void deliver(const MessageHeader& header, std::span<const std::byte> payload, PayloadHold hold);
  static void release(void* link, uint64_t ticket);

  // ArrayReach (shm_reach.cc).
  bool reaches() override;
  void open_arrays(const ArrayGrant& grant) override;
  void close_arrays(const ArrayGrant& grant) override;
  Touched read_array(const ArrayGrant& theirs, uint64_t from, std::span<std::byte> to) override;
  Touched write_array(const ArrayGrant& theirs, uint64_t to,
                      std::span<const std::byte> from) override;
  template <typename Copy>
  Touched touch(const ArrayGrant& theirs, const Copy& copy);
  void show_door();
  [[nodiscard]] bool proves_itself(uint32_t door) const;
  [[nodiscard]] uint32_t toucher(const ArrayGrant& grant) const;

  // Ends.
  void read_socket_bytes();
  void say(char byte);
  void broken(const char* what);
  void go_down();
  void finish(char farewell);
  void try_retire();

  LinkContext context_;
  ProcessId peer_;
  UniqueFd socket_;
  PollFlags flags_;
  UniqueFd peer_doorbell_;
  SharedMemory own_memory_;
  SharedMemory peer_memory_;
  SharedMemory peer_arena_;
  MailboxLayout* own_ = nullptr;
  const MailboxLayout* theirs_ = nullptr;

  uint64_t posted_ = 0;
  uint64_t rung_ = 0;        // `posted_` when the peer's sleep was last looked at
  uint64_t peer_taken_ = 0;  // as last seen
  uint64_t taken_ = 0;
  size_t unflushed_bytes_ = 0;
  size_t backlog_bytes_ = 0;
  GrowRing<Queued> queue_;        // what found the mailbox full
  std::vector<SlotRef> tickets_;  // what the peer may be reading, by ticket
  std::vector<uint32_t> free_tickets_;
  std::vector<uint32_t> releases_;  // the peer's tickets that we need no more
  LineDistance distance_;
  uint32_t arrivals_ = 0;  // polls that found something
  size_t holds_ = 0;       // payloads of the peer that somebody here reads

  uint32_t reached_door_ = 0;  // by which the peer's memory was found

  bool down_ = false;
  bool peer_ended_ = false;  // it will post no more
  bool peer_left_ = false;   // in an orderly way
  bool peer_done_ = false;   // it reads our arena no more
  bool said_done_ = false;
  Status failure_;
};

}  // namespace tersum
