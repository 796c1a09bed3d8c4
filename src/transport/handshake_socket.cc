#include "transport/handshake_socket.h"

#include "base/check.h"
#include "platform/stream_socket.h"
#include "tersum/version.h"
#include "transport/shm/mailbox.h"

namespace tersum {
namespace {

// Arena, mailbox, doorbell.
constexpr size_t kDescriptorsPerLink = 3;

}  // namespace

HandshakeSocket::HandshakeSocket(UniqueFd fd, Poller* poller)
    : fd_(std::move(fd)), poller_(poller) {
  // If it cannot be polled, nothing ever becomes ready and the deadline drops it.
  [[maybe_unused]] const Status added = poller_->add(fd_.get(), &flags_);
}

HandshakeSocket::~HandshakeSocket() {
  if (fd_) poller_->remove(fd_.get());
}

UniqueFd HandshakeSocket::take() {
  poller_->remove(fd_.get());
  return std::move(fd_);
}

HandshakeSocket::Progress HandshakeSocket::receive(HandshakeFrame* frame) {
  while (filled_ < kHandshakeBytes) {
    const ReadResult got =
        read_socket(fd_.get(), std::span(bytes_).subspan(filled_), &descriptors_);
    if (got.ended || got.error_number != 0) return Progress::kBroken;
    if (got.bytes == 0) {
      flags_.readable = false;
      return Progress::kWaiting;
    }
    filled_ += got.bytes;
    if (descriptors_.size() > kDescriptorsPerLink) return Progress::kBroken;
    const HandshakePrefix prefix = decode_handshake_prefix(std::span(bytes_).first(filled_));
    if (!prefix.is_tersum) return Progress::kBroken;
    if (prefix.complete && prefix.version != kWireVersion) {
      peer_version_ = prefix.version;
      return Progress::kOtherVersion;
    }
  }
  return decode(frame);
}

HandshakeSocket::Progress HandshakeSocket::decode(HandshakeFrame* frame) {
  filled_ = 0;
  const std::optional<HandshakeFrame> decoded = decode_handshake(bytes_);
  if (!decoded) return Progress::kBroken;
  *frame = *decoded;
  return Progress::kFrame;
}

bool HandshakeSocket::send(const HandshakeFrame& frame, std::span<const int> descriptors) {
  std::array<std::byte, kHandshakeBytes> bytes;
  encode_handshake(frame, bytes);
  return send_at_once(fd_.get(), bytes, descriptors);
}

Status take_shared_memory(const HandshakeFrame& frame, std::vector<UniqueFd>& descriptors,
                          Established* link) {
  if (descriptors.size() != kDescriptorsPerLink || frame.mailbox_bytes != kMailboxBytes) {
    return {StatusCode::kProtocol, "a peer offered shared memory of another shape"};
  }
  Result<SharedMemory> arena = SharedMemory::map_peer(std::move(descriptors[0]), frame.arena_bytes);
  if (!arena.ok()) return arena.status();
  Result<SharedMemory> mailbox =
      SharedMemory::map_peer(std::move(descriptors[1]), frame.mailbox_bytes);
  if (!mailbox.ok()) return mailbox.status();
  link->peer_arena = std::move(arena).value();
  link->peer_mailbox = std::move(mailbox).value();
  link->peer_doorbell = std::move(descriptors[2]);
  descriptors.clear();
  return {};
}

std::array<int, 3> offer_shared_memory(const HandshakeContext& context, const SharedMemory& mailbox,
                                       HandshakeFrame* frame) {
  TERSUM_CHECK(context.arena->memfd() >= 0);
  frame->arena_bytes = context.arena->capacity_bytes();
  frame->mailbox_bytes = mailbox.bytes();
  return {context.arena->memfd(), mailbox.fd(), context.doorbell};
}

}  // namespace tersum
