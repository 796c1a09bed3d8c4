#include "wire/message.h"

#include "base/bytes.h"

namespace tersum {
namespace {

constexpr size_t kKindAt = 0;
constexpr size_t kPhaseAt = 1;
constexpr size_t kViaAt = 2;
constexpr size_t kFromRankAt = 4;
constexpr size_t kToRankAt = 6;
constexpr size_t kGroupAt = 8;
constexpr size_t kCallAt = 16;
constexpr size_t kChunkAt = 24;
constexpr size_t kSliceAt = 28;
constexpr size_t kPayloadBytesAt = 32;
constexpr size_t kReservedAt = 36;
static_assert(kReservedAt + sizeof(uint32_t) == kMessageHeaderBytes);

constexpr auto kLastKind = static_cast<uint8_t>(MessageKind::kPlaced);
constexpr auto kLastPhase = static_cast<uint8_t>(FlowPhase::kScaleGather);

}  // namespace

void encode_header(const MessageHeader& header, std::span<std::byte, kMessageHeaderBytes> out) {
  std::byte* at = out.data();
  store_le(at + kKindAt, static_cast<uint8_t>(header.kind));
  store_le(at + kPhaseAt, static_cast<uint8_t>(header.phase));
  store_le(at + kViaAt, header.via);
  store_le(at + kFromRankAt, header.from_rank);
  store_le(at + kToRankAt, header.to_rank);
  store_le(at + kGroupAt, header.group);
  store_le(at + kCallAt, header.call);
  store_le(at + kChunkAt, header.chunk);
  store_le(at + kSliceAt, header.slice);
  store_le(at + kPayloadBytesAt, header.payload_bytes);
  store_le(at + kReservedAt, uint32_t{0});
}

std::optional<MessageHeader> decode_header(std::span<const std::byte, kMessageHeaderBytes> in) {
  const std::byte* at = in.data();
  const auto kind = load_le<uint8_t>(at + kKindAt);
  const auto phase = load_le<uint8_t>(at + kPhaseAt);
  MessageHeader header;
  header.via = load_le<uint16_t>(at + kViaAt);
  header.from_rank = load_le<uint16_t>(at + kFromRankAt);
  header.to_rank = load_le<uint16_t>(at + kToRankAt);
  header.group = load_le<uint64_t>(at + kGroupAt);
  header.call = load_le<uint64_t>(at + kCallAt);
  header.chunk = load_le<uint32_t>(at + kChunkAt);
  header.slice = load_le<uint32_t>(at + kSliceAt);
  header.payload_bytes = load_le<uint32_t>(at + kPayloadBytesAt);
  if (kind == 0 || kind > kLastKind || phase > kLastPhase ||
      load_le<uint32_t>(at + kReservedAt) != 0 || header.payload_bytes > kPayloadBytesMax) {
    return std::nullopt;
  }
  header.kind = static_cast<MessageKind>(kind);
  header.phase = static_cast<FlowPhase>(phase);
  return header;
}

}  // namespace tersum
