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

void TcpStream::enqueue(const MessageHeader& header, const SlotRef& payload,
                        const std::byte* lent) {
  if (!open() || write_failed_) return;
  Outgoing& out = queue_.push();
  encode_header(header, out.header);
  out.payload = header.payload_bytes > 0 ? payload : SlotRef();
  out.lent = lent;
  lent_ += lent != nullptr ? 1 : 0;
  out.payload_bytes = header.payload_bytes;
  out.sent = 0;
  backlog_bytes_ += kMessageHeaderBytes + header.payload_bytes;
  unflushed_bytes_ += kMessageHeaderBytes + header.payload_bytes;
}

ssize_t TcpStream::send_some() {
  std::array<iovec, 2 * kGatherMessages> parts;
  size_t count = 0;
  size_t bytes = 0;
  const size_t messages = std::min(queue_.size(), kGatherMessages);
  for (size_t i = 0; i < messages && bytes < kGatherBytes; ++i) {
    Outgoing& out = queue_.at(i);
    size_t skip = out.sent;
    if (skip < kMessageHeaderBytes) {
      parts[count++] = {out.header.data() + skip, kMessageHeaderBytes - skip};
      bytes += kMessageHeaderBytes - skip;
      skip = kMessageHeaderBytes;
    }
    const size_t payload_skip = skip - kMessageHeaderBytes;
    if (out.payload_bytes > payload_skip) {
      // An iovec serves reading and writing; nothing is written here.
      std::byte* const bytes_at =
          out.lent != nullptr ? const_cast<std::byte*>(out.lent) : out.payload.bytes().data();
      parts[count++] = {bytes_at + payload_skip, out.payload_bytes - payload_skip};
      bytes += out.payload_bytes - payload_skip;
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
    lent_ -= out.lent != nullptr ? 1 : 0;
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
  for (size_t i = queue_.size(); lent_ > 0 && i-- > 0;) {
    Outgoing& out = queue_.at(i);
    if (out.lent == nullptr) continue;
    const size_t sent = out.sent > kMessageHeaderBytes ? out.sent - kMessageHeaderBytes : 0;
    std::memcpy(out.payload.bytes().data() + sent, out.lent + sent, out.payload_bytes - sent);
    out.lent = nullptr;
    --lent_;
  }
}

void TcpStream::drop_queue() {
  queue_.clear();
  lent_ = 0;
  backlog_bytes_ = 0;
  unflushed_bytes_ = 0;
}

ssize_t TcpStream::read_some() {
  std::array<iovec, 2> parts;
  size_t count = 0;
  size_t wanted = 0;
  if (in_payload_) {
    parts[count++] = {arriving() + filled_, header_.payload_bytes - filled_};
    const bool large = header_.payload_bytes >= kLargePayloadBytes;
    parts[count++] = {staging_.data(), large ? kMessageHeaderBytes : staging_.size()};
    wanted = header_.payload_bytes - filled_ + parts[1].iov_len;
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
      std::memcpy(arriving(), staging_.data() + staged_begin_, step);
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
  landing_ = sink.stream_landing(header_);
  return true;
}

void TcpStream::drop_landing() {
  if (landing_ == nullptr) return;
  std::memcpy(slot_.bytes().data(), landing_, filled_);
  landing_ = nullptr;
}

bool TcpStream::deliver(StreamSink& sink) {
  in_payload_ = false;
  InMessage message;
  message.header = header_;
  if (header_.payload_bytes > 0) {
    message.payload = {arriving(), header_.payload_bytes};
    landing_ = nullptr;
    message.hold = PayloadHold(std::exchange(slot_, SlotRef()));
  }
  return sink.on_stream_message(std::move(message)) && open();
}

void TcpStream::end(Status why) {
  ended_ = true;
  // The first cause explains the later ones; a broken protocol explains them all.
  if (failure_.ok() || why.code() == StatusCode::kProtocol) failure_ = std::move(why);
  slot_ = SlotRef();
  landing_ = nullptr;
  drop_queue();
}

void TcpStream::start_linger() {
  slot_ = SlotRef();
  landing_ = nullptr;
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
  slot_ = SlotRef();
  landing_ = nullptr;
  staging_ = {};
  drop_queue();
}

}  // namespace tersum
