// Any bytes as what a peer of the same host puts into its mailbox and says over the socket, between
// the sends, polls and sleeps of a ShmLink. Whatever the peer does: what is delivered lies in its
// arena or in ours, the link ends with kProtocol or kPeerLost, once, and no slot stays in use.
#include <sys/socket.h>

#include <array>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "fuzz_input.h"
#include "platform/doorbell.h"
#include "platform/system_clock.h"
#include "transport/shm/shm_link.h"

namespace tersum {
namespace {

constexpr size_t kPeerArenaBytes = 64 * 1024;
constexpr size_t kStepsMax = 400;
// Offsets of a unit's fields, as docs/wire-format.md says.
constexpr size_t kTicketAt = 4;
constexpr size_t kOffsetAt = 8;
constexpr size_t kHeaderAt = 24;
constexpr size_t kTicketsAt = 8;

// What all inputs share: making it costs more than an input.
struct Host {
  SystemClock clock;
  std::unique_ptr<Poller> poller = std::move(Poller::create()).value();
  std::unique_ptr<Arena> arena = std::move(Arena::create(false, size_t{1} << 24)).value();
};

Host& host() {
  static auto* const made = new Host();
  return *made;
}

class Hearer final : public TransportSink {
 public:
  explicit Hearer(std::span<const std::byte> peer_arena) : peer_arena_(peer_arena) {}

  void on_message(Link& /*link*/, InMessage message) override {
    TERSUM_CHECK(downs_ == 0);
    TERSUM_CHECK(message.payload.size() == message.header.payload_bytes);
    if (!message.payload.empty()) {
      const std::byte* const begin = message.payload.data();
      const std::byte* const end = begin + message.payload.size();
      const Arena& own = *host().arena;
      const bool is_theirs =
          begin >= peer_arena_.data() && end <= peer_arena_.data() + peer_arena_.size();
      TERSUM_CHECK(is_theirs || (begin >= own.base() && end <= own.base() + own.capacity_bytes()));
      TERSUM_CHECK(is_theirs == (message.payload.size() > kInlineBytesMax));
    }
    holds_.push_back(std::move(message.hold));
  }
  void on_link_down(Link& link, const Status& reason) override {
    TERSUM_CHECK(link.down() && ++downs_ == 1);
    TERSUM_CHECK(reason.code() == StatusCode::kProtocol || reason.code() == StatusCode::kPeerLost);
  }
  void on_link_up(Link& /*link*/) override {}
  void on_connect_failed(ProcessId /*peer*/, const Status& /*reason*/) override {}

  void release(size_t most) {
    for (; most > 0 && !holds_.empty(); --most) holds_.pop_back();
  }
  void release_all() { holds_.clear(); }

 private:
  std::span<const std::byte> peer_arena_;
  std::vector<PayloadHold> holds_;
  int downs_ = 0;
};

// A link, and its peer as the input plays it.
class Play {
 public:
  explicit Play(FuzzInput& input) : input_(input) {
    int ends[2];
    TERSUM_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    peer_socket_ = UniqueFd(ends[1]);
    Established parts;
    parts.carrier = Carrier::kSharedMemory;
    parts.sockets.emplace_back(ends[0]);
    parts.own_mailbox = std::move(SharedMemory::anonymous(kMailboxBytes)).value();
    parts.peer_mailbox = std::move(SharedMemory::anonymous(kMailboxBytes)).value();
    parts.peer_arena = std::move(SharedMemory::anonymous(kPeerArenaBytes)).value();
    parts.peer_doorbell = std::move(make_doorbell()).value();
    ours_ = reinterpret_cast<const MailboxLayout*>(parts.own_mailbox.base());
    theirs_ = reinterpret_cast<MailboxLayout*>(parts.peer_mailbox.base());
    hearer_.emplace(std::span<const std::byte>(parts.peer_arena.base(), kPeerArenaBytes));
    sink_ = &*hearer_;
    const LinkContext context{host().arena.get(), host().poller.get(), &host().clock, &sink_};
    link_.emplace(context, std::move(parts));
  }

  void run() {
    for (size_t step = 0; step < kStepsMax && !input_.rest().empty() && !link_->down(); ++step) {
      take_step();
    }
    end();
  }

 private:
  void take_step();
  void end();
  void poll() {
    const bool lies = theirs_->posted.load() - taken_ > kUnits;
    host().poller->dispatch();
    link_->poll();
    if (link_->down()) return;
    TERSUM_CHECK(!lies);
    const uint64_t taken = ours_->taken.load();
    TERSUM_CHECK(taken >= taken_ && taken <= theirs_->posted.load());
    taken_ = taken;
    for (const uint32_t ticket : releasing_) reading_.erase(ticket);
    if (taken == posted_) releasing_.clear();
  }
  void send();
  void sleep() {
    link_->prepare_sleep();
    link_->finish_sleep();
  }

  // The peer's.
  void take();
  std::byte* next_unit() { return theirs_->units[posted_++ % kUnits].bytes.data(); }
  void publish() { theirs_->posted.store(posted_); }
  void post_raw();
  void post_message();
  void post_releases();
  void say() {
    const auto byte = static_cast<char>(input_.byte());
    if (peer_socket_) TERSUM_CHECK(::send(peer_socket_.get(), &byte, 1, MSG_NOSIGNAL) == 1);
  }

  FuzzInput& input_;
  UniqueFd peer_socket_;
  const MailboxLayout* ours_ = nullptr;
  MailboxLayout* theirs_ = nullptr;
  std::optional<Hearer> hearer_;
  TransportSink* sink_ = nullptr;
  std::optional<ShmLink> link_;
  std::set<uint32_t> reading_;       // tickets of payloads that the peer has not released
  std::vector<uint32_t> releasing_;  // written, and perhaps not seen by the link
  bool reads_all_ = true;            // else it does not know them any more
  uint64_t read_ = 0;
  uint64_t posted_ = 0;  // by the peer
  uint64_t taken_ = 0;   // by the link, as it has said
};

void Play::take_step() {
  switch (input_.byte() % 12) {
    case 0:
      return post_raw();
    case 1:
    case 2:
      return post_message();
    case 3:
      return post_releases();
    case 4:
      return publish();
    case 5:
      return take();
    case 6:
      return theirs_->sleeping.store(input_.byte());
    case 7:
      return send();
    case 8:
      return hearer_->release(input_.byte());
    case 9:
      return sleep();
    case 10:
      if (input_.peek() < 8) return say();
      if (input_.peek() < 16) {
        posted_ += input_.below(3000);
        reads_all_ = false;  // older units count again
      }
      return;
    default:
      return poll();
  }
}

void Play::send() {
  MessageHeader header;
  header.payload_bytes = input_.below(2000);
  if (header.payload_bytes == 0) return link_->send(header, {});
  Result<SlotRef> slot = host().arena->reserve(header.payload_bytes);
  TERSUM_CHECK(slot.ok());
  link_->send(header, slot.value());
  if (input_.byte() % 2 == 0) link_->flush();
}

// Reads what we have posted, and says so, or lies.
void Play::take() {
  const uint64_t lie = input_.peek() / 250 - uint64_t{input_.peek() % 16U == 9};
  input_.byte();
  for (const uint64_t end = ours_->posted.load(); read_ < end; ++read_) {
    const std::byte* const unit = ours_->units[read_ % kUnits].bytes.data();
    const auto kind = static_cast<UnitKind>(load_le<uint32_t>(unit));
    const auto header = decode_header(
        std::span<const std::byte, kMessageHeaderBytes>(unit + kHeaderAt, kMessageHeaderBytes));
    if (kind == UnitKind::kReleases) continue;
    TERSUM_CHECK(header.has_value());
    if (kind == UnitKind::kInline) {
      read_ += (header->payload_bytes + kUnitBytes - 1) / kUnitBytes;
    } else {
      TERSUM_CHECK(kind == UnitKind::kMessage);
      const bool is_new = reading_.insert(load_le<uint32_t>(unit + kTicketAt)).second;
      // Two payloads under one ticket: the release of one would let the other change.
      TERSUM_CHECK(is_new || !reads_all_);
    }
  }
  if (lie != 0) reads_all_ = false;
  theirs_->taken.store(read_ + lie);
}

void Play::post_raw() {
  const std::vector<std::byte> bytes = input_.bytes(kUnitBytes);
  std::copy(bytes.begin(), bytes.end(), next_unit());
  reads_all_ = false;  // a release, perhaps
}

// One that may be right: of any kind, with a header that is.
void Play::post_message() {
  std::byte* const unit = next_unit();
  const bool is_inline = input_.byte() % 2 == 0;
  MessageHeader header;
  header.payload_bytes = input_.below(is_inline ? 300 : 2 * kPeerArenaBytes / 3);
  store_le(unit, static_cast<uint32_t>(is_inline ? UnitKind::kInline : UnitKind::kMessage));
  store_le(unit + kTicketAt, uint32_t{input_.byte()});
  store_le(unit + kOffsetAt, uint64_t{input_.below(kPeerArenaBytes / 64 + 2)} * 64);
  store_le(unit + kOffsetAt + 8, uint64_t{0});
  encode_header(header,
                std::span<std::byte, kMessageHeaderBytes>(unit + kHeaderAt, kMessageHeaderBytes));
  if (!is_inline) return;
  if (input_.byte() % 4 == 0) {
    reads_all_ = false;  // units that follow are its bytes, and what lay there is read as units
  } else {
    posted_ += (header.payload_bytes + kUnitBytes - 1) / kUnitBytes;
  }
}

void Play::post_releases() {
  std::byte* const unit = next_unit();
  const uint32_t count = input_.below(kReleasesPerUnit + 2);
  store_le(unit, static_cast<uint32_t>(UnitKind::kReleases));
  store_le(unit + kTicketAt, count);
  for (size_t i = 0; i < std::min<size_t>(count, kReleasesPerUnit); ++i) {
    const uint32_t ticket = uint32_t{input_.byte()} % 16;
    store_le(unit + kTicketsAt + 4 * i, ticket);
    releasing_.push_back(ticket);
    if (!reading_.contains(ticket)) reads_all_ = false;
  }
}

// The peer goes, and with it the last reason to keep anything.
void Play::end() {
  if (input_.byte() % 2 == 0) link_->close();
  peer_socket_.reset();
  for (int round = 0; round < 4 && !link_->retired(); ++round) {
    hearer_->release_all();
    host().poller->dispatch();
    link_->poll();
    if (link_->down()) sleep();
  }
  TERSUM_CHECK(link_->retired());
  hearer_->release_all();
  TERSUM_CHECK(host().arena->used_bytes() == 0);
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tersum::FuzzInput input(data, size);
  tersum::Play(input).run();
  return 0;
}
