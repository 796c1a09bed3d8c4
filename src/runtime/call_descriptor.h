// CallDescriptor: the arguments of a collective that all ranks must agree on; payload of kReady.
//
// Pure values. Invariant: a descriptor from the wire is only compared with the local one and
// printed, never used to size anything.
//
// Offsets: collective 0, op 1, type 2, plan 3, root 4, count 8, codec length 16, codec
// text 17..111, flatten 112, tensors 120. With open arrays, which are not compared, also: slot 128,
// zero 132, key 136, input 144, output 152.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "transport/array_reach.h"

namespace tersum {

inline constexpr size_t kDescriptorBytes = 128;
inline constexpr size_t kOpenDescriptorBytes = 160;  // of a rank whose arrays are open
inline constexpr size_t kCodecTextBytesMax = 95;

// Where a rank's arrays lie, for peers that touch them there (transport/array_reach.h).
struct OpenArrays {
  ArrayGrant grant;  // of no key: they do not
  uint64_t input = 0;
  uint64_t output = 0;
};

struct CallDescriptor {
  Collective collective = Collective::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  DataType type = DataType::kFloat32;
  PlanKind plan = PlanKind::kAuto;
  uint32_t root = 0;
  uint64_t count = 0;      // elements handed in by one rank
  std::string_view codec;  // canonical spec; views memory that outlives the descriptor
  // Of a coalesced call: the number of tensors (upper 24 bits) and a hash of their lengths; else 0.
  uint64_t tensors = 0;
  // Of a flattened call, or one that learns a clip or levels: digest of its sites and of what is
  // known there; else 0.
  uint64_t flatten = 0;
  OpenArrays arrays;
};

// How many bytes it took of `out`: one of the two numbers above.
size_t encode_descriptor(const CallDescriptor& descriptor,
                         std::span<std::byte, kOpenDescriptorBytes> out);
// The codec text views `in`. Empty when the bytes are no descriptor, or there is something behind
// the codec text.
std::optional<CallDescriptor> decode_descriptor(std::span<const std::byte> in);

// Ok when equal; else kDisagreement naming the first differing argument, both values and both
// ranks.
Status compare_descriptors(const CallDescriptor& own, int own_rank, const CallDescriptor& other,
                           int other_rank);

// Payload of kCancel: why a call ended, for the ranks that are still in it.
struct CancelNotice {
  StatusCode code = StatusCode::kAborted;
  bool poisons = true;
  std::string_view text;
};
inline constexpr size_t kCancelTextBytesMax = 1000;
// Returns the bytes used; the text is cut to kCancelTextBytesMax, between two characters. `out`
// holds at least that plus 8.
size_t encode_cancel(const CancelNotice& notice, std::span<std::byte> out);
// Empty when the bytes are no notice: an unknown code, or "ok"; a reserved byte that is not 0.
std::optional<CancelNotice> decode_cancel(std::span<const std::byte> in);

}  // namespace tersum
