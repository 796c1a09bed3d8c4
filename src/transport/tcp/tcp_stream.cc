#include "transport/tcp/tcp_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "platform/system_error.h"

namespace tersum {
namespace {

// One system call sends up to this many messages, and stops gathering at this many bytes: more at
// once would only be cut by the socket buffer.
constexpr size_t kGatherMessages = 32;
constexpr size_t kGatherBytes = 512 * 1024;
// And at this many pieces: the kernel takes 1024.
constexpr size_t kGatherPieces = 512;
static_assert(kGatherPieces > 2 * kGatherMessages + kPayloadPiecesMax);

// Many small messages arrive in one read, and so does one of 16 KiB with its header: copying it
// once more costs less than a second system call (four ranks on two cores, 64 KiB: 139 us, 129
// since).
constexpr size_t kStagingBytes = 20 * 1024;
// Behind a payload this large only the next header is read along: the next payload is likely as
// large and should go straight into its slot.
constexpr size_t kLargePayloadBytes = 8 * 1024;
// Reads that one round of a lingering stream throws away at most.
constexpr int kLingerReads = 64;

}  // namespace

TcpStream::TcpStream(UniqueFd fd, Poller* poller, Arena* arena, CarrierWatch* watch)
    : fd_(std::move(fd)), poller_(poller), arena_(arena), watch_(watch), staging_(kStagingBytes) {
  flags_ = {.readable = true, .writable = true};
  if (Status added = poller_->add(fd_.get(), &flags_); !added.ok()) end(std::move(added));
}

void TcpStream::enqueue(const MessageHeader& header, const SlotRef& payload, SourcePieces lent) {
  TERSUM_CHECK(lent.size() <= kPayloadPiecesMax);
  if (!open() || write_failed_) return;
  Outgoing& out = queue_.push();
  encode_header(header, out.header);
  out.payload = header.payload_bytes > 0 ? payload : SlotRef();
  out.lent_begin = static_cast<uint32_t>(lent_.size());
  out.lent_pieces = static_cast<uint32_t>(lent.size());
  lent_.insert(lent_.end(), lent.begin(), lent.end());
  out.payload_bytes = header.payload_bytes;
  out.sent = 0;
  backlog_bytes_ += kMessageHeaderBytes + header.payload_bytes;
  unflushed_bytes_ += kMessageHeaderBytes + header.payload_bytes;
}

ssize_t TcpStream::send_some() {
  std::array<iovec, kGatherPieces> parts;
  size_t count = 0;
  size_t bytes = 0;
  // An iovec serves reading and writing; nothing is written here.
  const auto add = [&](std::span<const std::byte> piece) {
    parts[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    bytes += piece.size();
  };
  const size_t messages = std::min(queue_.size(), kGatherMessages);
  for (size_t i = 0; i < messages && bytes < kGatherBytes; ++i) {
    Outgoing& out = queue_.at(i);
    if (count + 2 + out.lent_pieces > kGatherPieces) break;
    size_t skip = out.sent;
    if (skip < kMessageHeaderBytes) {
      add(std::span(out.header).subspan(skip));
      skip = kMessageHeaderBytes;
    }
    const size_t payload_skip = skip - kMessageHeaderBytes;
    if (out.lent_pieces > 0) {
      each_piece(lent_of(out), payload_skip, add);
    } else if (out.payload_bytes > payload_skip) {
      add(out.payload.bytes().first(out.payload_bytes).subspan(payload_skip));
    }
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  ssize_t sent = -1;
  do {
    sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  // A short count means that the buffer is full, like EAGAIN: an edge will tell when it is not.
  if (sent < static_cast<ssize_t>(bytes)) flags_.writable = false;
  return sent;
}

void TcpStream::retire_sent(size_t bytes) {
  while (bytes > 0) {
    Outgoing& out = queue_.front();
    const size_t rest = kMessageHeaderBytes + out.payload_bytes - out.sent;
    const size_t step = std::min(rest, bytes);
    out.sent += static_cast<uint32_t>(step);
    backlog_bytes_ -= step;
    bytes -= step;
    if (step < rest) return;
    if (watch_ != nullptr) watch_->on_taken(*decode_header(out.header));
    queue_.pop();
  }
}

bool TcpStream::flush() {
  unflushed_bytes_ = 0;
  bool moved = false;
  while (open() && flags_.writable && !queue_.empty()) {
    const ssize_t sent = send_some();
    if (sent > 0) {
      moved = true;
      retire_sent(static_cast<size_t>(sent));
    } else if (sent < 0 && errno != EAGAIN) {
      // What the peer sent before it went is still to be read; the end of that ends the stream.
      write_failed_ = true;
      flags_.readable = true;
      if (failure_.ok()) failure_ = system_error(StatusCode::kPeerLost, "sending failed", errno);
      drop_queue();
    }
  }
  return moved;
}

void TcpStream::settle() {
  flush();
  if (lent_.empty()) return;
  for (size_t i = 0; i < queue_.size(); ++i) {
    Outgoing& out = queue_.at(i);
    if (out.lent_pieces == 0) continue;
    const size_t sent = out.sent > kMessageHeaderBytes ? out.sent - kMessageHeaderBytes : 0;
    copy_out(lent_of(out), sent, out.payload.bytes().data() + sent, out.payload_bytes - sent);
    out.lent_pieces = 0;
  }
  lent_.clear();
}

void TcpStream::drop_queue() {
  queue_.clear();
  lent_.clear();
  backlog_bytes_ = 0;
  unflushed_bytes_ = 0;
}

ssize_t TcpStream::read_some() {
  std::array<iovec, kPayloadPiecesMax + 1> parts;
  size_t count = 0;
  size_t wanted = 0;
  if (in_payload_) {
    each_piece(TargetPieces(arriving_), filled_,
               [&](std::span<std::byte> piece) { parts[count++] = {piece.data(), piece.size()}; });
    const bool large = header_.payload_bytes >= kLargePayloadBytes;
    parts[count++] = {staging_.data(), large ? kMessageHeaderBytes : staging_.size()};
    wanted = header_.payload_bytes - filled_ + parts[count - 1].iov_len;
  } else {
    // At most one incomplete header is left over here.
    std::memmove(staging_.data(), staging_.data() + staged_begin_, staged_end_ - staged_begin_);
    staged_end_ -= staged_begin_;
    staged_begin_ = 0;
    wanted = staging_.size() - staged_end_;
    parts[count++] = {staging_.data() + staged_end_, wanted};
  }
  ssize_t got = -1;
  do {
    got = readv(fd_.get(), parts.data(), static_cast<int>(count));
  } while (got < 0 && errno == EINTR);
  // Less than asked for: the buffer is empty, and an edge will tell when it is not. After the
  // peer's end no edge comes any more.
  if (got < static_cast<ssize_t>(wanted)) flags_.readable = flags_.half_closed && got > 0;
  return got;
}

size_t TcpStream::receive(StreamSink& sink, size_t budget_bytes) {
  size_t total = 0;
  while (open() && !ended_ && flags_.readable && total < budget_bytes) {
    const ssize_t got = read_some();
    if (got < 0) {
      // Nothing left to read and nothing can be written: the connection is over.
      if (errno != EAGAIN || write_failed_) {
        end(system_error(StatusCode::kPeerLost, "receiving failed", errno));
      }
      break;
    }
    if (got == 0) {
      end(Status(StatusCode::kPeerLost, "the connection was closed"));
      break;
    }
    size_t bytes = static_cast<size_t>(got);
    total += bytes;
    if (in_payload_) {
      const size_t into_payload = std::min(bytes, header_.payload_bytes - filled_);
      filled_ += into_payload;
      bytes -= into_payload;
      staged_begin_ = 0;
      staged_end_ = bytes;
      if (filled_ < header_.payload_bytes) continue;
      if (!deliver(sink)) break;
    } else {
      staged_end_ += bytes;
    }
    if (!parse_staged(sink)) break;
  }
  return total;
}

bool TcpStream::parse_staged(StreamSink& sink) {
  while (!in_payload_ && staged_end_ - staged_begin_ >= kMessageHeaderBytes) {
    if (!begin_message(sink)) return false;
    const size_t staged = staged_end_ - staged_begin_;
    const size_t step = std::min<size_t>(staged, header_.payload_bytes);
    if (step > 0) {
      copy_in(arriving_, 0, staging_.data() + staged_begin_, step);
      staged_begin_ += step;
      filled_ = step;
    }
    if (filled_ == header_.payload_bytes && !deliver(sink)) return false;
  }
  if (staged_begin_ == staged_end_) staged_begin_ = staged_end_ = 0;
  return true;
}

bool TcpStream::begin_message(StreamSink& sink) {
  const std::span<const std::byte, kMessageHeaderBytes> bytes(staging_.data() + staged_begin_,
                                                              kMessageHeaderBytes);
  const std::optional<MessageHeader> header = decode_header(bytes);
  if (!header.has_value()) {
    end(Status(StatusCode::kProtocol, "a message header that no version of tersum writes"));
    return false;
  }
  staged_begin_ += kMessageHeaderBytes;
  header_ = *header;
  filled_ = 0;
  in_payload_ = true;
  if (header_.payload_bytes == 0) return true;
  Result<SlotRef> slot = arena_->reserve(header_.payload_bytes);
  if (!slot.ok()) {
    end(slot.status());
    return false;
  }
  slot_ = std::move(slot).value();
  sink.find_stream_landing(header_, arriving_);
  TERSUM_CHECK(arriving_.size() <= kPayloadPiecesMax);
  lands_ = !arriving_.empty();
  if (!lands_) arriving_.push_back(slot_.bytes().first(header_.payload_bytes));
  return true;
}

void TcpStream::drop_landing() {
  if (!lands_) return;
  const std::span<std::byte> room = slot_.bytes().first(header_.payload_bytes);
  copy_out(TargetPieces(arriving_), 0, room.data(), filled_);
  arriving_.assign(1, room);
  lands_ = false;
}

void TcpStream::drop_arriving() {
  slot_ = SlotRef();
  arriving_.clear();
  lands_ = false;
}

bool TcpStream::deliver(StreamSink& sink) {
  in_payload_ = false;
  InMessage message;
  message.header = header_;
  if (header_.payload_bytes > 0) {
    message.payload = arriving_.front();
    message.landed = std::exchange(lands_, false);
    arriving_.clear();
    message.hold = PayloadHold(std::exchange(slot_, SlotRef()));
  }
  return sink.on_stream_message(std::move(message)) && open();
}

void TcpStream::end(Status why) {
  ended_ = true;
  // The first cause explains the later ones; a broken protocol explains them all.
  if (failure_.ok() || why.code() == StatusCode::kProtocol) failure_ = std::move(why);
  drop_arriving();
  drop_queue();
}

void TcpStream::start_linger() {
  drop_arriving();
  drop_queue();
  if (!open()) return;
  shutdown(fd_.get(), SHUT_WR);
  flags_.readable = true;
  linger();
}

void TcpStream::linger() {
  for (int i = 0; i < kLingerReads && open() && flags_.readable; ++i) {
    const ssize_t got = recv(fd_.get(), staging_.data(), staging_.size(), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got == 0 || errno != EAGAIN) return close();
    flags_.readable = false;
  }
}

void TcpStream::close() {
  if (!open()) return;
  poller_->remove(fd_.get());
  fd_.reset();
  flags_ = {};
  drop_arriving();
  staging_ = {};
  drop_queue();
}

}  // namespace tersum
