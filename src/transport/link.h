// Link: the connection between two *processes*, whatever carries it. Communicators and ranks borrow
// it.
//
// Thread safety: none; only the holder of the progress role calls it.
// Invariants: never blocks, owns no thread, never looks into a payload. Messages are addressed by
// their headers, so a link may deliver them in any order (striped streams do), each exactly once
// or, after on_link_down, never. A received message that nobody has released yet never holds up the
// ones behind it. Nothing is delivered from within send().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tersum/status.h"
#include "transport/arena.h"
#include "transport/array_reach.h"
#include "transport/payload_pieces.h"
#include "wire/message.h"

namespace tersum {

// Where a received payload lies until the receiver is done with it. Move-only; its end gives the
// memory back (to this process's arena, or to the peer that wrote it).
class PayloadHold {
 public:
  // Called once, when the payload is no longer needed.
  using Release = void (*)(void* context, uint64_t token);

  PayloadHold() = default;
  explicit PayloadHold(SlotRef slot) : slot_(std::move(slot)) {}
  PayloadHold(Release release, void* context, uint64_t token)
      : release_(release), context_(context), token_(token) {}
  PayloadHold(PayloadHold&& other) noexcept
      : slot_(std::move(other.slot_)),
        release_(std::exchange(other.release_, nullptr)),
        context_(other.context_),
        token_(other.token_) {}
  PayloadHold& operator=(PayloadHold&& other) noexcept {
    if (this != &other) {
      reset();
      slot_ = std::move(other.slot_);
      release_ = std::exchange(other.release_, nullptr);
      context_ = other.context_;
      token_ = other.token_;
    }
    return *this;
  }
  ~PayloadHold() { reset(); }
  void reset() {
    slot_ = SlotRef();
    if (release_ != nullptr) std::exchange(release_, nullptr)(context_, token_);
  }
  // The slot of this process's arena that holds the payload, so that the same bytes can be sent on
  // without a copy; empty when they lie in the peer's memory.
  [[nodiscard]] const SlotRef& slot() const { return slot_; }

 private:
  SlotRef slot_;
  Release release_ = nullptr;
  void* context_ = nullptr;
  uint64_t token_ = 0;
};

struct InMessage {
  MessageHeader header;
  std::span<const std::byte> payload;
  PayloadHold hold;
  // The payload is where find_landing() said; `payload` is the first piece of it.
  bool landed = false;
};

// Who hears that a carrier has taken a message whole (a socket's buffer, the peer's mailbox).
// Called from within send(), flush() or poll(); must not call back.
class CarrierWatch {
 public:
  virtual ~CarrierWatch() = default;
  virtual void on_taken(const MessageHeader& header) = 0;
};

class Link;

// Who hears of what arrives. Implemented by the runtime's node.
class LinkSink {
 public:
  virtual ~LinkSink() = default;
  virtual void on_message(Link& link, InMessage message) = 0;
  // Of a message whose payload is still to come: adds to `landing`, which is empty, where to put
  // it: at most kPayloadPiecesMax pieces with header.payload_bytes of room that keep from
  // on_message() on what they got; none: nowhere in particular. A link need not ask. One that did
  // gives the place up in drop_landings().
  virtual void find_landing(Link& /*link*/, const MessageHeader& /*header*/, Landing& /*landing*/) {
  }
  // The peer process is gone or broke the protocol; once, and nothing afterwards. Everything queued
  // has been dropped, every slot released.
  virtual void on_link_down(Link& link, const Status& reason) = 0;
};

// Names a process for its whole life; random, drawn at start.
struct ProcessId {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

class Link {
 public:
  virtual ~Link() = default;

  [[nodiscard]] virtual ProcessId peer() const = 0;
  [[nodiscard]] virtual std::string_view transport() const = 0;  // "tcp", "shm", "local", "sim"
  // Whether it takes much at once rather than soon: no wire is idle while the sender prepares more.
  [[nodiscard]] virtual bool gathers() const { return false; }

  // Whether payloads for the peer are better written past the caches, because it reads them in
  // place from cores that are far. May change from one moment to the next.
  [[nodiscard]] virtual bool far() const { return false; }

  // Queues a message whose payload is the first header.payload_bytes of `payload` (empty SlotRef
  // when 0); the bytes may not change until the slot's last reference has gone. After the link is
  // down it does nothing.
  virtual void send(const MessageHeader& header, const SlotRef& payload) = 0;

  // How the peer's arrays are touched where they are; null: in no way.
  [[nodiscard]] virtual ArrayReach* reach() { return nullptr; }

  // Whether lending it payloads saves a copy.
  [[nodiscard]] virtual bool borrows() const { return false; }
  // As send(), but the payload's bytes are those of `lent`, at most kPayloadPiecesMax pieces, which
  // the caller keeps as they are until settle().
  virtual void send_lent(const MessageHeader& header, const SlotRef& payload, SourcePieces lent) {
    copy_out(lent, 0, payload.bytes().data(), header.payload_bytes);
    send(header, payload);
  }
  // Pushes out what is queued, and copies what the peer did not take of lent bytes to their slots.
  virtual void settle() {}

  // From here on no payload is put where a landing was found, unless it has been delivered.
  virtual void drop_landings() {}

  // Pushes out what is queued, as far as the peer takes it now.
  virtual void flush() = 0;

  // Delivers what has arrived to the sink, a bounded amount; true if anything moved either way.
  virtual bool poll() = 0;

  // Bytes of messages, headers included, queued and not yet taken by the carrier: above 0 while
  // anything of what was sent still needs a poll() or flush() to leave.
  [[nodiscard]] virtual size_t backlog_bytes() const = 0;
  [[nodiscard]] virtual bool down() const = 0;

  // Says kGoodbye, flushes what can be flushed at once and goes down without a report.
  virtual void close() = 0;
};

}  // namespace tersum
