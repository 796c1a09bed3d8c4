#include "transport/shm/shm_link.h"

#include <array>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "platform/doorbell.h"
#include "platform/stream_socket.h"

namespace tersum {
namespace {

// One poll() takes at most this many units, so that no peer starves the others.
constexpr uint64_t kUnitsPerPoll = 256;
// The clock is read three times to time a line, which takes 60 ns: as long as a near peer's line.
constexpr uint32_t kArrivalsPerTiming = 4;
// send() itself looks whether the peer sleeps when this much was posted since the last flush.
constexpr size_t kFlushBytes = 128 * 1024;

constexpr uint32_t kAwake = 0;
constexpr uint32_t kAsleep = 1;
constexpr uint32_t kAsleepAndFull = 2;  // wants to hear of room in its mailbox, too

constexpr size_t kTicketAt = 4;
constexpr size_t kOffsetAt = 8;
constexpr size_t kHeaderAt = 24;
constexpr size_t kFirstReleaseAt = 8;

constexpr char kLeft = 'G';
constexpr char kError = 'E';
constexpr char kDone = 'D';

size_t inline_units(size_t payload_bytes) { return (payload_bytes + kUnitBytes - 1) / kUnitBytes; }

void fill_unit(Unit& unit, UnitKind kind, uint32_t ticket, uint64_t offset,
               const MessageHeader& header) {
  std::byte* at = unit.bytes.data();
  store_le(at, static_cast<uint32_t>(kind));
  store_le(at + kTicketAt, ticket);
  store_le(at + kOffsetAt, offset);
  store_le(at + kOffsetAt + 8, uint64_t{0});
  encode_header(header,
                std::span<std::byte, kMessageHeaderBytes>(at + kHeaderAt, kMessageHeaderBytes));
}

std::optional<MessageHeader> header_of(const Unit& unit) {
  return decode_header(std::span<const std::byte, kMessageHeaderBytes>(
      unit.bytes.data() + kHeaderAt, kMessageHeaderBytes));
}

}  // namespace

ShmLink::ShmLink(const LinkContext& context, Established parts)
    : context_(context),
      peer_(parts.peer),
      socket_(std::move(parts.sockets.front())),
      peer_doorbell_(std::move(parts.peer_doorbell)),
      own_memory_(std::move(parts.own_mailbox)),
      peer_memory_(std::move(parts.peer_mailbox)),
      peer_arena_(std::move(parts.peer_arena)),
      own_(reinterpret_cast<MailboxLayout*>(own_memory_.base())),
      theirs_(reinterpret_cast<const MailboxLayout*>(peer_memory_.base())) {
  TERSUM_CHECK(own_ != nullptr && theirs_ != nullptr);
  flags_.readable = true;
  if (Status added = context_.poller->add(socket_.get(), &flags_); !added.ok()) {
    failure_ = std::move(added);
  }
}

ShmLink::~ShmLink() {
  // A hold that outlives its link would give back memory that is gone.
  TERSUM_CHECK(holds_ == 0);
  if (socket_) context_.poller->remove(socket_.get());
}

bool ShmLink::far() const {
  if (context_.stores != PayloadStores::kAuto) return context_.stores == PayloadStores::kStreamed;
  return distance_.far();
}

// ---- output

bool ShmLink::has_room(size_t units) {
  if (posted_ - peer_taken_ + units <= kUnits) return true;
  const uint64_t taken = theirs_->taken.load(std::memory_order_acquire);
  if (posted_ - taken > kUnits) {
    broken("it says that it has read what was never written");
    return false;
  }
  peer_taken_ = taken;
  return posted_ - peer_taken_ + units <= kUnits;
}

Unit& ShmLink::next_unit() { return own_->units[posted_++ % kUnits]; }

uint32_t ShmLink::issue_ticket(const SlotRef& payload) {
  if (free_tickets_.empty()) {
    tickets_.push_back(payload);
    if (free_tickets_.capacity() < tickets_.size()) free_tickets_.reserve(2 * tickets_.size());
    return static_cast<uint32_t>(tickets_.size() - 1);
  }
  const uint32_t ticket = free_tickets_.back();
  free_tickets_.pop_back();
  tickets_[ticket] = payload;
  return ticket;
}

void ShmLink::post_inline(const MessageHeader& header, const SlotRef& payload) {
  fill_unit(next_unit(), UnitKind::kInline, 0, 0, header);
  size_t left = header.payload_bytes;
  const std::byte* from = left > 0 ? payload.bytes().data() : nullptr;
  while (left > 0) {
    const size_t step = std::min(left, kUnitBytes);
    std::memcpy(next_unit().bytes.data(), from, step);
    from += step;
    left -= step;
  }
}

bool ShmLink::post(const MessageHeader& header, const SlotRef& payload) {
  const bool fits_inline = header.payload_bytes <= kInlineBytesMax;
  if (!has_room(fits_inline ? 1 + inline_units(header.payload_bytes) : 1)) return false;
  if (fits_inline) {
    post_inline(header, payload);
  } else {
    const uint64_t offset = context_.arena->offset(payload);
    const uint32_t ticket = issue_ticket(payload);
    context_.arena->lend(payload);
    fill_unit(next_unit(), UnitKind::kMessage, ticket, offset, header);
  }
  own_->posted.store(posted_, std::memory_order_release);
  if (context_.watch != nullptr) context_.watch->on_taken(header);
  return true;
}

void ShmLink::send(const MessageHeader& header, const SlotRef& payload) {
  if (down_ || peer_ended_) return;
  TERSUM_CHECK(header.payload_bytes <= kPayloadBytesMax);
  TERSUM_CHECK(header.payload_bytes == 0 || header.payload_bytes <= payload.bytes().size());
  if (!queue_.empty() || !post(header, payload)) {
    Queued& queued = queue_.push();
    queued.header = header;
    queued.payload = header.payload_bytes > 0 ? payload : SlotRef();
    backlog_bytes_ += kMessageHeaderBytes + header.payload_bytes;
  }
  unflushed_bytes_ += kMessageHeaderBytes + header.payload_bytes;
  if (unflushed_bytes_ >= kFlushBytes) ring_if_asleep();
}

bool ShmLink::post_releases() {
  bool moved = false;
  while (!releases_.empty() && has_room(1)) {
    Unit& unit = next_unit();
    const size_t count = std::min(releases_.size(), kReleasesPerUnit);
    store_le(unit.bytes.data(), static_cast<uint32_t>(UnitKind::kReleases));
    store_le(unit.bytes.data() + kTicketAt, static_cast<uint32_t>(count));
    for (size_t i = 0; i < count; ++i) {
      store_le(unit.bytes.data() + kFirstReleaseAt + 4 * i, releases_[releases_.size() - 1 - i]);
    }
    releases_.resize(releases_.size() - count);
    own_->posted.store(posted_, std::memory_order_release);
    moved = true;
  }
  return moved;
}

bool ShmLink::post_queued() {
  bool moved = false;
  while (!queue_.empty() && post(queue_.front().header, queue_.front().payload)) {
    backlog_bytes_ -= kMessageHeaderBytes + queue_.front().header.payload_bytes;
    queue_.pop();
    moved = true;
  }
  return moved;
}

void ShmLink::ring_if_asleep() {
  unflushed_bytes_ = 0;
  if (rung_ == posted_) return;
  rung_ = posted_;
  // Post, then look; the sleeper announces itself, then looks for posts: one of the two sees the
  // other, because all four accesses are sequentially consistent.
  own_->posted.store(posted_, std::memory_order_seq_cst);
  if (theirs_->sleeping.load(std::memory_order_seq_cst) != kAwake) {
    ring_doorbell(peer_doorbell_.get());
  }
}

void ShmLink::flush() {
  if (down_) return;
  post_releases();
  post_queued();
  ring_if_asleep();
}

// ---- input

bool ShmLink::take_units() {
  const uint64_t available = theirs_->posted.load(std::memory_order_acquire) - taken_;
  if (available == 0) return false;
  if (available > kUnits) {
    broken("it says that it has written more than there is room for");
    return false;
  }
  // The first of what has arrived: the peer wrote its line last, and nothing was read of it.
  if (++arrivals_ % kArrivalsPerTiming == 0) {
    distance_.time(*context_.clock, theirs_->units[taken_ % kUnits].bytes.data());
  }
  const uint64_t first = taken_;
  while (taken_ - first < std::min(available, kUnitsPerPoll)) {
    if (!take_unit(available - (taken_ - first)) || down_) break;
  }
  if (down_) return true;
  own_->taken.store(taken_, std::memory_order_seq_cst);
  if (theirs_->sleeping.load(std::memory_order_seq_cst) == kAsleepAndFull) {
    ring_doorbell(peer_doorbell_.get());
  }
  return true;
}

bool ShmLink::take_unit(uint64_t available) {
  // The copy is what is checked and used: the original may change at any time.
  const Unit unit = theirs_->units[taken_ % kUnits];
  ++taken_;
  switch (static_cast<UnitKind>(load_le<uint32_t>(unit.bytes.data()))) {
    case UnitKind::kMessage:
      return take_message(unit);
    case UnitKind::kInline:
      return take_inline(unit, available - 1);
    case UnitKind::kReleases:
      return take_releases(unit);
  }
  broken("a unit of an unknown kind");
  return false;
}

bool ShmLink::take_message(const Unit& unit) {
  const std::optional<MessageHeader> header = header_of(unit);
  const auto ticket = load_le<uint32_t>(unit.bytes.data() + kTicketAt);
  const auto offset = load_le<uint64_t>(unit.bytes.data() + kOffsetAt);
  if (!header || header->payload_bytes <= kInlineBytesMax || offset % 64 != 0 ||
      offset > peer_arena_.bytes() || header->payload_bytes > peer_arena_.bytes() - offset) {
    broken("a message that does not lie in its arena");
    return false;
  }
  ++holds_;
  deliver(*header, {peer_arena_.base() + offset, header->payload_bytes},
          PayloadHold(&ShmLink::release, this, ticket));
  return true;
}

bool ShmLink::take_inline(const Unit& unit, uint64_t available) {
  const std::optional<MessageHeader> header = header_of(unit);
  if (!header || header->payload_bytes > kInlineBytesMax ||
      inline_units(header->payload_bytes) > available) {
    broken("a short message that is not all there");
    return false;
  }
  if (header->payload_bytes == 0) {
    deliver(*header, {}, PayloadHold());
    return true;
  }
  Result<SlotRef> slot = context_.arena->reserve(header->payload_bytes);
  if (!slot.ok()) {
    if (failure_.ok()) failure_ = slot.status();
    return false;
  }
  const std::span<std::byte> bytes = slot->bytes().first(header->payload_bytes);
  for (size_t done = 0; done < bytes.size(); done += kUnitBytes, ++taken_) {
    std::memcpy(bytes.data() + done, theirs_->units[taken_ % kUnits].bytes.data(),
                std::min(kUnitBytes, bytes.size() - done));
  }
  deliver(*header, bytes, PayloadHold(std::move(slot).value()));
  return true;
}

bool ShmLink::take_releases(const Unit& unit) {
  const auto count = load_le<uint32_t>(unit.bytes.data() + kTicketAt);
  bool right = count <= kReleasesPerUnit;
  for (size_t i = 0; right && i < count; ++i) {
    const auto ticket = load_le<uint32_t>(unit.bytes.data() + kFirstReleaseAt + 4 * i);
    right = ticket < tickets_.size() && tickets_[ticket];
    if (!right) break;
    tickets_[ticket] = SlotRef();
    free_tickets_.push_back(ticket);
  }
  if (!right) broken("it releases what it does not hold");
  return right;
}

void ShmLink::deliver(const MessageHeader& header, std::span<const std::byte> payload,
                      PayloadHold hold) {
  if (*context_.sink == nullptr) return;
  InMessage message;
  message.header = header;
  message.payload = payload;
  message.hold = std::move(hold);
  (*context_.sink)->on_message(*this, std::move(message));
}

void ShmLink::release(void* link, uint64_t ticket) {
  auto* self = static_cast<ShmLink*>(link);
  TERSUM_CHECK(self->holds_ > 0);
  --self->holds_;
  if (!self->down_) self->releases_.push_back(static_cast<uint32_t>(ticket));
}

// ---- rounds, sleep, ends

bool ShmLink::poll() {
  if (!down_) {
    show_door();
    const bool had_ended = peer_ended_;
    bool moved = take_units();
    if (down_) return true;  // the sink has closed this link
    if (failure_.ok() && !peer_ended_) {
      moved |= post_releases();
      moved |= post_queued();
    }
    ring_if_asleep();
    if (flags_.readable) read_socket_bytes();
    // What was posted before the end was said is delivered first.
    const bool drained = had_ended && theirs_->posted.load(std::memory_order_acquire) == taken_;
    if (failure_.ok() && !drained) return moved || peer_ended_;
    go_down();
    return true;
  }
  if (retired()) return false;
  if (flags_.readable) read_socket_bytes();
  try_retire();
  return false;
}

void ShmLink::read_socket_bytes() {
  std::array<std::byte, 16> bytes;
  while (socket_ && !(peer_ended_ && peer_done_)) {
    const ReadResult got = read_socket(socket_.get(), bytes, nullptr);
    if (got.ended || got.error_number != 0) {
      peer_ended_ = peer_done_ = true;
      break;
    }
    if (got.bytes == 0) break;
    for (size_t i = 0; i < got.bytes; ++i) {
      const char byte = static_cast<char>(bytes[i]);
      if (byte == kDone) peer_done_ = true;
      if (byte == kLeft) peer_left_ = true;
      peer_ended_ = true;
    }
  }
  flags_.readable = false;
}

void ShmLink::say(char byte) {
  const std::array<std::byte, 1> bytes = {static_cast<std::byte>(byte)};
  // If it cannot be sent the peer is gone, and needs no telling.
  [[maybe_unused]] const bool sent = send_at_once(socket_.get(), bytes);
}

void ShmLink::broken(const char* what) {
  if (failure_.ok()) {
    failure_ =
        Status(StatusCode::kProtocol, "the shared-memory link to peer process " +
                                          process_name(peer_) + " broke the protocol: " + what);
  }
}

void ShmLink::go_down() {
  Status reason = failure_;
  if (reason.ok()) {
    reason = Status(
        StatusCode::kPeerLost,
        peer_left_ ? "peer process " + process_name(peer_) + " left: it closed its communicators"
                   : "lost the shared-memory link to peer process " + process_name(peer_) +
                         ": the connection was closed");
  }
  finish(kError);
  if (*context_.sink != nullptr) (*context_.sink)->on_link_down(*this, reason);
}

void ShmLink::close() {
  if (down_) return;
  flush();
  finish(kLeft);
}

void ShmLink::finish(char farewell) {
  down_ = true;
  say(farewell);
  queue_.clear();
  releases_.clear();
  backlog_bytes_ = 0;
  try_retire();
}

void ShmLink::try_retire() {
  if (holds_ == 0 && !said_done_) {
    said_done_ = true;
    say(kDone);
    peer_arena_ = SharedMemory();
  }
  if (peer_done_) {
    tickets_.clear();
    free_tickets_.clear();
  }
  if (!peer_done_ || !said_done_) return;
  context_.poller->remove(socket_.get());
  socket_.reset();
  peer_doorbell_.reset();
  own_ = nullptr;
  theirs_ = nullptr;
  own_memory_ = SharedMemory();
  peer_memory_ = SharedMemory();
}

bool ShmLink::prepare_sleep() {
  if (down_) {
    if (!retired()) try_retire();
    return retired() || !flags_.readable;
  }
  flush();
  const bool all_posted = queue_.empty() && releases_.empty();
  own_->sleeping.store(all_posted ? kAsleep : kAsleepAndFull, std::memory_order_seq_cst);
  if (!failure_.ok() || peer_ended_ || flags_.readable) return false;
  if (theirs_->posted.load(std::memory_order_seq_cst) != taken_) return false;
  return all_posted || theirs_->taken.load(std::memory_order_seq_cst) == peer_taken_;
}

void ShmLink::finish_sleep() {
  if (!down_) own_->sleeping.store(kAwake, std::memory_order_relaxed);
}

}  // namespace tersum
