#include "transport/tcp/tcp_link.h"

#include <algorithm>

#include "base/check.h"
#include "platform/stream_socket.h"

namespace tersum {
namespace {

// One poll() reads about this much from a link, so that no peer starves the others.
constexpr size_t kPollBytes = 512 * 1024;
// send() itself flushes when this much is queued: the wire should not wait for the end of a batch.
constexpr size_t kFlushBytes = 128 * 1024;
// On loopback there is no wire, and sending is copying by this core. What a call costs beside that
// is the receiver's interruption: 512 KiB each way take 163 us in one call, 250 in calls of 128 KiB
// and reads between them.
constexpr size_t kLoopbackFlushBytes = 512 * 1024;
// What a socket has taken goes out in that order, whoever comes later: with the kernel's 4 MB a
// call of 1 MiB beside one of 64 took 87 to 93 ms at 1 Gbit/s, 34 ms for each of its two steps.
// What waits above the socket is shared by all calls (Operation::backlogged()). The socket asks for
// more when half of this has left; what a rank codes between two looks at its links takes about
// 60 us, in which a wire of 34 Gbit/s sends the other half.
constexpr int kUnsentBytes = 512 * 1024;
// After one connection of a link has ended, the time for the ends of the others to arrive.
constexpr int64_t kEndGraceNs = 200'000'000;
// After close(), the time for the peer to close.
constexpr int64_t kLingerNs = 2'000'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

TcpLink::TcpLink(const LinkContext& context, ProcessId peer, std::vector<UniqueFd> streams)
    : context_(context),
      peer_(peer),
      loopback_(!streams.empty() && is_loopback(streams.front().get())) {
  TERSUM_CHECK(!streams.empty());
  for (UniqueFd& fd : streams) {
    if (!loopback_) limit_unsent(fd.get(), kUnsentBytes);
    streams_.push_back(
        std::make_unique<TcpStream>(std::move(fd), context.poller, context.arena, context.watch));
  }
}

TcpStream& TcpLink::least_loaded() {
  size_t best = next_stream_;
  for (size_t i = 1; i < streams_.size(); ++i) {
    const size_t other = (next_stream_ + i) % streams_.size();
    if (streams_[other]->backlog_bytes() < streams_[best]->backlog_bytes()) best = other;
  }
  next_stream_ = (best + 1) % streams_.size();  // ties go round
  return *streams_[best];
}

void TcpLink::send(const MessageHeader& header, const SlotRef& payload) {
  send_lent(header, payload, {});
}

void TcpLink::send_lent(const MessageHeader& header, const SlotRef& payload, SourcePieces lent) {
  if (down_) return;
  TERSUM_CHECK(header.payload_bytes <= kPayloadBytesMax);
  TERSUM_CHECK(header.payload_bytes == 0 || header.payload_bytes <= payload.bytes().size());
  TcpStream& stream = header.kind == MessageKind::kData ? least_loaded() : *streams_.front();
  stream.enqueue(header, payload, lent);
  const size_t enough = loopback_ ? kLoopbackFlushBytes : kFlushBytes;
  if (stream.unflushed_bytes() >= enough) stream.flush();
}

bool TcpLink::flush_streams() {
  bool moved = false;
  for (const auto& stream : streams_) moved |= stream->flush();
  return moved;
}

void TcpLink::settle() {
  for (const auto& stream : streams_) stream->settle();
}

void TcpLink::drop_landings() {
  for (const auto& stream : streams_) stream->drop_landing();
}

void TcpLink::flush() {
  if (!down_) flush_streams();
}

bool TcpLink::poll() {
  if (down_) {
    poll_lingering();
    return false;
  }
  bool moved = false;
  size_t budget = kPollBytes;
  for (const auto& stream : streams_) {
    const size_t got = stream->receive(*this, std::max<size_t>(budget / streams_.size(), 1));
    moved |= got > 0;
    if (down_) return true;  // the sink has closed this link
  }
  moved |= flush_streams();
  check_ends();
  return moved || down_;
}

bool TcpLink::on_stream_message(InMessage message) {
  if (message.header.kind == MessageKind::kGoodbye && message.header.group == 0) {
    peer_left_ = true;
    return true;
  }
  if (*context_.sink != nullptr) (*context_.sink)->on_message(*this, std::move(message));
  return !down_;
}

void TcpLink::find_stream_landing(const MessageHeader& header, Landing& landing) {
  if (*context_.sink != nullptr) (*context_.sink)->find_landing(*this, header, landing);
}

void TcpLink::check_ends() {
  size_t ended = 0;
  const TcpStream* cause = nullptr;
  for (const auto& stream : streams_) {
    if (!stream->ended()) continue;
    ++ended;
    const bool worse = stream->failure().code() != StatusCode::kPeerLost;
    if (cause == nullptr || worse) cause = stream.get();
  }
  if (cause == nullptr) return;
  const int64_t now = context_.clock->now_ns();
  if (deadline_ns_ == kNever) deadline_ns_ = now + kEndGraceNs;
  const Status& failure = cause->failure();
  const bool broken = failure.code() != StatusCode::kPeerLost;
  if (ended < streams_.size() && now < deadline_ns_ && !broken) return;
  if (peer_left_ && !broken) {
    return go_down(Status(StatusCode::kPeerLost, "peer process " + process_name(peer_) +
                                                     " left: it closed its communicators"));
  }
  go_down(Status(failure.code(), "lost the TCP link to peer process " + process_name(peer_) + ": " +
                                     std::string(failure.message())));
}

void TcpLink::go_down(const Status& reason) {
  down_ = true;
  deadline_ns_ = kNever;
  for (const auto& stream : streams_) stream->close();
  if (*context_.sink != nullptr) (*context_.sink)->on_link_down(*this, reason);
}

void TcpLink::close() {
  if (down_) return;
  MessageHeader goodbye;
  goodbye.kind = MessageKind::kGoodbye;
  streams_.front()->enqueue(goodbye, {});
  flush_streams();
  down_ = true;
  deadline_ns_ = context_.clock->now_ns() + kLingerNs;
  for (const auto& stream : streams_) stream->start_linger();
}

void TcpLink::poll_lingering() {
  if (retired()) return;
  const bool late = context_.clock->now_ns() >= deadline_ns_;
  for (const auto& stream : streams_) {
    if (late) {
      stream->close();
    } else {
      stream->linger();
    }
  }
  if (retired()) deadline_ns_ = kNever;
}

bool TcpLink::prepare_sleep() {
  if (!down_) flush_streams();
  // An end that poll() has seen has set the deadline; until then it is news.
  return std::none_of(streams_.begin(), streams_.end(), [this](const auto& stream) {
    return stream->open() && (stream->ended() ? deadline_ns_ == kNever : stream->readable());
  });
}

size_t TcpLink::backlog_bytes() const {
  size_t bytes = 0;
  for (const auto& stream : streams_) bytes += stream->backlog_bytes();
  return bytes;
}

bool TcpLink::blocked() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream->blocked(); });
}

bool TcpLink::retired() const {
  return down_ && std::none_of(streams_.begin(), streams_.end(),
                               [](const auto& stream) { return stream->open(); });
}

}  // namespace tersum
