// TcpStream: one connection of a link: messages as header and payload, back to back.
//
// Thread safety: none (progress role).
// Invariants: never blocks. Payloads go from the sender's slot, or from where they are lent, to the
// kernel and from the kernel into the receiver's slot, but for those that fit into the staging
// buffer behind a header. After settle() nothing queued lies outside slots. No
// allocation once the queue has been as deep as it gets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "platform/poller.h"
#include "platform/unique_fd.h"
#include "transport/arena.h"
#include "transport/grow_ring.h"
#include "transport/link.h"

namespace tersum {

// Who takes the messages of a stream; false stops the reading (the stream may be closed by then).
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  virtual bool on_stream_message(InMessage message) = 0;
  // As LinkSink::find_landing().
  virtual void find_stream_landing(const MessageHeader& header, Landing& landing) = 0;
};

class TcpStream {
 public:
  // `fd` has finished its handshake.
  // Null `watch`: nobody wants to know what was taken.
  TcpStream(UniqueFd fd, Poller* poller, Arena* arena, CarrierWatch* watch);
  ~TcpStream() { close(); }

  // `lent` not empty: the payload's bytes lie there until settle(), and not in the slot.
  void enqueue(const MessageHeader& header, const SlotRef& payload, SourcePieces lent = {});
  // Flushes, then copies the rest of what was lent to the slots.
  void settle();
  // True if bytes moved.
  bool flush();
  // Reads at most about `budget_bytes`; the bytes read.
  size_t receive(StreamSink& sink, size_t budget_bytes);

  // The payload that is arriving goes on in its slot.
  void drop_landing();

  // Sends no more and throws away what comes, until the peer has closed, too: closing a socket with
  // unread input would destroy output that is still on its way.
  void start_linger();
  void linger();
  void close();

  [[nodiscard]] bool open() const { return static_cast<bool>(fd_); }
  // The peer will send no more, or broke the protocol; why.
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] const Status& failure() const { return failure_; }

  [[nodiscard]] bool readable() const { return flags_.readable; }
  [[nodiscard]] bool blocked() const { return !queue_.empty() && !flags_.writable; }
  [[nodiscard]] size_t backlog_bytes() const { return backlog_bytes_; }
  [[nodiscard]] size_t unflushed_bytes() const { return unflushed_bytes_; }

 private:
  struct Outgoing {
    std::array<std::byte, kMessageHeaderBytes> header{};
    SlotRef payload;
    uint32_t lent_begin = 0;  // in lent_, where the payload is instead, for now
    uint32_t lent_pieces = 0;
    uint32_t payload_bytes = 0;
    uint32_t sent = 0;  // of header and payload together
  };

  [[nodiscard]] SourcePieces lent_of(const Outgoing& out) const {
    return SourcePieces(lent_).subspan(out.lent_begin, out.lent_pieces);
  }
  ssize_t send_some();
  void retire_sent(size_t bytes);
  void drop_queue();
  ssize_t read_some();
  bool parse_staged(StreamSink& sink);
  bool begin_message(StreamSink& sink);
  void drop_arriving();
  bool deliver(StreamSink& sink);
  void end(Status why);

  UniqueFd fd_;
  Poller* poller_;
  Arena* arena_;
  CarrierWatch* watch_;
  PollFlags flags_;
  bool ended_ = false;
  bool write_failed_ = false;
  Status failure_;

  GrowRing<Outgoing> queue_;
  std::vector<std::span<const std::byte>> lent_;  // since the last settle()
  size_t backlog_bytes_ = 0;
  size_t unflushed_bytes_ = 0;  // queued since the last flush

  // What was read behind the last message: [staged_begin_, staged_end_).
  std::vector<std::byte> staging_;
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;
  bool in_payload_ = false;
  MessageHeader header_;
  SlotRef slot_;
  Landing arriving_;    // where the payload goes: to the slot, or a landing
  bool lands_ = false;  // to a landing
  size_t filled_ = 0;
};

}  // namespace tersum
