#include "runtime/call_descriptor.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace tersum {
namespace {

Status disagreement(std::string_view what, const std::string& own, int own_rank,
                    const std::string& other, int other_rank) {
  // The lower rank is named first, so that every rank reads the same sentence.
  const bool own_first = own_rank < other_rank;
  std::string text = "ranks disagree on ";
  text += what;
  text += ": rank " + std::to_string(own_first ? own_rank : other_rank) + " has " +
          (own_first ? own : other) + ", rank " +
          std::to_string(own_first ? other_rank : own_rank) + " has " + (own_first ? other : own) +
          "; pass the same on every rank";
  return {StatusCode::kDisagreement, std::move(text)};
}

std::string describe_digest(uint64_t digest) {
  if (digest == 0) return "no channels";
  std::string text = "digest ";
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(digest >> shift) & 15];
  return text;
}

std::string describe_tensors(uint64_t tensors) {
  constexpr int kHashBits = 40;
  if (tensors == 0) return "one array";
  return std::to_string(tensors >> kHashBits) + " tensors whose lengths have checksum " +
         std::to_string(tensors & ((uint64_t{1} << kHashBits) - 1));
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool is_status_code(StatusCode code) { return status_code_name(code) != "unknown"; }

// As much of `text` as fits, without half a character at its end.
size_t cancel_text_bytes(std::string_view text) {
  if (text.size() <= kCancelTextBytesMax) return text.size();
  const auto continues = [](char byte) { return (static_cast<uint8_t>(byte) & 0xc0U) == 0x80U; };
  size_t bytes = kCancelTextBytesMax;
  while (bytes > 0 && continues(text[bytes])) --bytes;
  return bytes;
}

}  // namespace

size_t encode_descriptor(const CallDescriptor& descriptor,
                         std::span<std::byte, kOpenDescriptorBytes> out) {
  TERSUM_CHECK(descriptor.codec.size() <= kCodecTextBytesMax);
  std::fill(out.begin(), out.end(), std::byte{0});
  out[0] = static_cast<std::byte>(descriptor.collective);
  out[1] = static_cast<std::byte>(descriptor.op);
  out[2] = static_cast<std::byte>(descriptor.type);
  out[3] = static_cast<std::byte>(descriptor.plan);
  store_le(out.data() + 4, descriptor.root);
  store_le(out.data() + 8, descriptor.count);
  out[16] = static_cast<std::byte>(descriptor.codec.size());
  std::memcpy(out.data() + 17, descriptor.codec.data(), descriptor.codec.size());
  store_le(out.data() + 112, descriptor.flatten);
  store_le(out.data() + 120, descriptor.tensors);
  const OpenArrays& arrays = descriptor.arrays;
  if (arrays.grant.key == 0) return kDescriptorBytes;
  store_le(out.data() + 128, arrays.grant.slot);
  store_le(out.data() + 136, arrays.grant.key);
  store_le(out.data() + 144, arrays.input);
  store_le(out.data() + 152, arrays.output);
  return kOpenDescriptorBytes;
}

std::optional<CallDescriptor> decode_descriptor(std::span<const std::byte> in) {
  const bool opens = in.size() == kOpenDescriptorBytes;
  if (in.size() != kDescriptorBytes && !opens) return std::nullopt;
  const auto codec_bytes = static_cast<size_t>(in[16]);
  if (in[0] >= std::byte{kCollectiveCount} || in[1] > std::byte{3} ||
      in[3] >= std::byte{kPlanKindCount} || in[2] >= std::byte{kDataTypeCount} ||
      codec_bytes > kCodecTextBytesMax) {
    return std::nullopt;
  }
  if (!all_zero(in.first(17 + kCodecTextBytesMax).subspan(17 + codec_bytes))) return std::nullopt;
  CallDescriptor descriptor;
  descriptor.collective = static_cast<Collective>(in[0]);
  descriptor.op = static_cast<ReduceOp>(in[1]);
  descriptor.type = static_cast<DataType>(in[2]);
  descriptor.plan = static_cast<PlanKind>(in[3]);
  descriptor.root = load_le<uint32_t>(in.data() + 4);
  descriptor.count = load_le<uint64_t>(in.data() + 8);
  descriptor.codec = {reinterpret_cast<const char*>(in.data()) + 17, codec_bytes};
  descriptor.flatten = load_le<uint64_t>(in.data() + 112);
  descriptor.tensors = load_le<uint64_t>(in.data() + 120);
  if (!opens) return descriptor;
  ArrayGrant& grant = descriptor.arrays.grant;
  grant = {load_le<uint32_t>(in.data() + 128), load_le<uint64_t>(in.data() + 136)};
  const bool right = grant.slot < kArrayGrantsMax && all_zero(in.subspan(132, 4));
  if (!right || grant.key == 0) return std::nullopt;
  descriptor.arrays.input = load_le<uint64_t>(in.data() + 144);
  descriptor.arrays.output = load_le<uint64_t>(in.data() + 152);
  return descriptor;
}

Status compare_descriptors(const CallDescriptor& own, int own_rank, const CallDescriptor& other,
                           int other_rank) {
  const auto differ = [&](std::string_view what, std::string_view a, std::string_view b) {
    return disagreement(what, std::string(a), own_rank, std::string(b), other_rank);
  };
  if (own.collective != other.collective) {
    return differ("the collective", collective_name(own.collective),
                  collective_name(other.collective));
  }
  if (own.tensors != other.tensors) {
    return differ("the tensors of the call", describe_tensors(own.tensors),
                  describe_tensors(other.tensors));
  }
  if (own.count != other.count) {
    return differ("the length", std::to_string(own.count) + " elements",
                  std::to_string(other.count) + " elements");
  }
  if (own.type != other.type) {
    return differ("the data type", data_type_name(own.type), data_type_name(other.type));
  }
  if (own.op != other.op) {
    return differ("the operation", reduce_op_name(own.op), reduce_op_name(other.op));
  }
  if (own.codec != other.codec) return differ("the codec", own.codec, other.codec);
  if (own.flatten != other.flatten) {
    return differ("what +flatten, +clip or kmeans knows (site, channels, state)",
                  describe_digest(own.flatten), describe_digest(other.flatten));
  }
  if (own.plan != other.plan) {
    return differ("the plan", plan_kind_name(own.plan), plan_kind_name(other.plan));
  }
  if (own.root != other.root) {
    return differ("the root", "rank " + std::to_string(own.root),
                  "rank " + std::to_string(other.root));
  }
  return {};
}

size_t encode_cancel(const CancelNotice& notice, std::span<std::byte> out) {
  const size_t text_bytes = cancel_text_bytes(notice.text);
  TERSUM_CHECK(out.size() >= 8 + text_bytes);
  const auto code = static_cast<uint32_t>(notice.code);
  store_le(out.data(), code);
  out[4] = static_cast<std::byte>(notice.poisons ? 1 : 0);
  out[5] = out[6] = out[7] = std::byte{0};
  std::memcpy(out.data() + 8, notice.text.data(), text_bytes);
  return 8 + text_bytes;
}

std::optional<CancelNotice> decode_cancel(std::span<const std::byte> in) {
  if (in.size() < 8 || in.size() > 8 + kCancelTextBytesMax) return std::nullopt;
  CancelNotice notice;
  notice.code = static_cast<StatusCode>(load_le<uint32_t>(in.data()));
  if (notice.code == StatusCode::kOk || !is_status_code(notice.code) || in[4] > std::byte{1} ||
      !all_zero(in.subspan(5, 3))) {
    return std::nullopt;
  }
  notice.poisons = in[4] == std::byte{1};
  notice.text = {reinterpret_cast<const char*>(in.data()) + 8, in.size() - 8};
  return notice;
}

}  // namespace tersum
