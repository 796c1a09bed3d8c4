// The header before every message between two processes of a group, and the call descriptor.
//
// Pure: layout, encode, decode. All integers little-endian. Sizes here are only ever compared with
// what the local call expects; a receiver never trusts them (the transport bounds payload_bytes
// before it makes room).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tersum {

enum class MessageKind : uint8_t {
  kReady = 1,   // payload: CallDescriptor. "I am in this call; these are my arguments."
  kData = 2,    // payload: one slice of one flow, in the codec's wire format
  kCredit = 3,  // no payload; `slice` = slices of the flow consumed so far
  kCancel = 4,  // payload: CancelNotice (status code, poison flag, text). Last message of a call.
  kPing = 5,    // group-less liveness question; answered by the peer's progress engine
  kPong = 6,
  kGoodbye = 7,  // the process leaves the group in an orderly way
  kPlaced = 8    // no payload; a chunk's sums lie in the receiver's array, and what it brought to
                 // them has been read
};

enum class FlowPhase : uint8_t {
  kReduce = 0,
  kGather = 1,
  // The same of the scales that ranks agree on before a sum.
  kScaleReduce = 2,
  kScaleGather = 3
};

// The phase of a plan, for either stage of a call; and what it is called in a stage.
constexpr FlowPhase plan_phase(FlowPhase phase) {
  return phase == FlowPhase::kReduce || phase == FlowPhase::kScaleReduce ? FlowPhase::kReduce
                                                                         : FlowPhase::kGather;
}
constexpr FlowPhase stage_phase(FlowPhase phase, bool of_scales) {
  if (!of_scales) return phase;
  return phase == FlowPhase::kReduce ? FlowPhase::kScaleReduce : FlowPhase::kScaleGather;
}

// Offsets on the wire: kind 0, phase 1, via 2, from_rank 4, to_rank 6, group 8, call 16, chunk
// 24, slice 28, payload_bytes 32, reserved 36; 40 bytes in all.
struct MessageHeader {
  MessageKind kind = MessageKind::kReady;
  FlowPhase phase = FlowPhase::kReduce;
  // 1 + the rank that this message is handed to next where sender and receiver have no link; 0 on
  // its last way, to the receiver itself.
  uint16_t via = 0;
  uint16_t from_rank = 0;
  uint16_t to_rank = 0;
  uint64_t group = 0;  // id of the group, agreed by its ranks
  uint64_t call = 0;   // sequence number, or a key that all ranks derive alike
  uint32_t chunk = 0;
  uint32_t slice = 0;
  uint32_t payload_bytes = 0;
};
inline constexpr size_t kMessageHeaderBytes = 40;

// A payload that may travel before the receiver said it is ready.
inline constexpr size_t kEagerBytesMax = 64 * 1024;
// No honest message is larger: a header that says so comes from a stranger or a broken peer.
inline constexpr size_t kPayloadBytesMax = 4 * 1024 * 1024;

void encode_header(const MessageHeader& header, std::span<std::byte, kMessageHeaderBytes> out);
// Empty when the kind or phase is unknown, reserved bytes are not 0, or payload_bytes exceeds
// kPayloadBytesMax.
std::optional<MessageHeader> decode_header(std::span<const std::byte, kMessageHeaderBytes> in);

}  // namespace tersum
