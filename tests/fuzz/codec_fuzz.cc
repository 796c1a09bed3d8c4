// Any bytes as a payload of any spec, any values as its input. The first bytes of the input say
// which spec, value type and count; TERSUM_FUZZ_FORMAT=nvfp4 in the environment fixes the format.
//
// What holds: nothing crashes; the instruction sets agree; parts of a slice decode to what the
// whole does; what an encoder wrote is never refused, comes back within the stated bound, and no
// finite block comes back with anything else than finite numbers; what is accepted decodes to none
// either.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../unit/codec/block_places.h"
#include "base/bytes.h"
#include "base/check.h"
#include "choose_spec.h"
#include "codec/channel_state.h"
#include "codec/codec.h"
#include "codec/force_isa.h"
#include "codec/kernels/numbers.h"
#include "codec/shared_sums.h"
#include "fuzz_input.h"
#include "tersum/codec_payload.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

// Those that lossy formats serve come three times as often.
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16,
                               DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16,
                               DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16,
                               DataType::kFloat64, DataType::kInt32,    DataType::kInt64,
                               DataType::kUint8};
// Mostly a few blocks; now and then a tile and a bit.
constexpr uint32_t kCountFew = 300;
constexpr uint32_t kCountMax = 3200;
constexpr uint32_t kWiresMax = 11;
constexpr std::byte kUntouched{0xa5};

bool is_lossy_type(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kBFloat16 || type == DataType::kFloat16;
}

float load(DataType type, const std::byte* from) {
  if (type == DataType::kFloat32) return load_unaligned<float>(from);
  const auto bits = load_unaligned<uint16_t>(from);
  return type == DataType::kBFloat16 ? bf16_to_float(bits) : half_to_float(bits);
}

// Bits at random, which are mostly far apart, or small integers times a power of two.
Bytes choose_values(FuzzInput& input, DataType type, size_t count) {
  const uint8_t mood = input.byte();
  if ((mood & 1U) == 0 || !is_lossy_type(type)) return input.bytes(count * element_bytes(type));
  const int exponent = input.byte() - 130;
  const Bytes numbers = input.bytes(count);
  Bytes values(count * element_bytes(type));
  for (size_t i = 0; i < count; ++i) {
    const auto value = std::ldexp(static_cast<float>(static_cast<int8_t>(numbers[i])), exponent);
    std::byte* const to = values.data() + i * element_bytes(type);
    if (type == DataType::kFloat32) store_unaligned(to, value);
    if (type == DataType::kBFloat16) store_unaligned(to, float_to_bf16(value));
    if (type == DataType::kFloat16) store_unaligned(to, float_to_half(value));
  }
  return values;
}

// What a call knows of its clip; outside of calls nothing.
struct ClipState {
  bool is_known = false;
  bool is_held = false;  // the codec is that of held calls
  ClipFactors factors;
};

struct Case {
  const Codec& codec;
  size_t count;
  Bytes wire;
  Bytes values;
  size_t step;  // blocks that are decoded together
  size_t wires;
  size_t own_index;
  CombineFinish finish;
  std::vector<uint16_t> scales;  // of a sum whose ranks share them, which `codec` is for then
  bool has_order = false;        // of the contributions
  ClipState clip;
  std::optional<ChannelState> channels;  // of a call that flattens
  size_t first = 0;                      // there, in the array

  [[nodiscard]] bool shares() const { return !scales.empty(); }
  [[nodiscard]] bool has_factors() const { return channels.has_value(); }
  [[nodiscard]] SlicePlace place() const {
    SlicePlace place;
    place.first = first;
    if (has_factors()) place.factors = channels->factors();
    place.scales = scales.data();
    place.divisor = finish.divisor;
    if (clip.is_known) place.clips = &clip.factors;
    return place;
  }
};

// Clips of any size; in blocks either may be unknown yet.
ClipState choose_clip(FuzzInput& input, uint32_t ranks) {
  const uint8_t way = input.byte();
  ClipState state;
  state.is_known = (way & 3U) != 0;
  state.is_held = (way & 2U) != 0;
  state.factors.ranks = ranks;
  for (float* const clip : {&state.factors.contribution, &state.factors.sum}) {
    const float mantissa = 1 + static_cast<float>(input.byte()) / 256;
    *clip = std::ldexp(mantissa, input.byte() - 130);
  }
  if (!state.is_held && (way & 4U) != 0) state.factors.sum = 0;
  if (!state.is_held && (way & 8U) != 0) state.factors.contribution = 0;
  return state;
}

// As if learned or loaded: mean squares of any size, zeros among them.
ChannelState choose_channels(FuzzInput& input) {
  ChannelState state(2 + input.below(100));
  Bytes saved(state.saved_bytes());
  store_le(saved.data(), uint64_t{1});
  store_le(saved.data() + 8, ChannelState::kRowsMin);
  const Bytes sizes = input.bytes(state.channels());
  for (size_t c = 0; c < state.channels(); ++c) {
    const int size = std::to_integer<int>(sizes[c]);
    const double mantissa = 1 + (size & 3) / 4.0;
    store_le(saved.data() + 16 + 8 * c, size == 0 ? 0.0 : std::ldexp(mantissa, 2 * (size - 130)));
  }
  TERSUM_CHECK(state.load(saved));
  return state;
}

// Any, of as many blocks as there can be.
std::vector<uint16_t> choose_scales(FuzzInput& input, const Codec& codec, const SharedSums& sums,
                                    size_t count) {
  const bool in_rows = sums.scale_row() > 0;
  std::vector<uint16_t> scales(1 +
                               (in_rows ? shared_scale_count(sums, count) : count / codec.block()));
  const Bytes bits = input.bytes(scales.size() * 2);
  std::memcpy(scales.data(), bits.data(), bits.size());
  return scales;
}

Case choose_case(FuzzInput& input) {
  const std::string spec = choose_spec(input);
  const DataType type = input.one_of(std::span<const DataType>(kTypes));
  const uint8_t way = input.byte();
  const size_t count = input.below((way & 15U) == 0 ? kCountMax : kCountFew);
  const ReduceOp op = (way & 0x1cU) != 0   ? ReduceOp::kAverage
                      : (way & 0x20U) != 0 ? ReduceOp::kMax
                                           : ReduceOp::kSum;
  const Codec& named = *find_codec(spec, type, op).value();
  const bool shares = named.shared_sums() != nullptr && (way & 0x40U) == 0;
  // Where whoever adds up has all contributions they are as many as the ranks.
  const bool has_order = shares && !named.shared_sums()->takes_partials();
  const uint32_t few = 2 + input.peek() % 7;
  const bool takes_few = has_order && named.shared_sums()->refusal(few).empty();
  const uint32_t ranks = !has_order  ? 2 + input.peek() % 126
                         : takes_few ? few
                                     : std::bit_floor(few);
  const Codec& in_blocks = shares ? *summing_codec(named, ranks, true) : named;
  const size_t any_wires = 1 + input.byte() % kWiresMax;
  const size_t wires = has_order ? ranks - 1 : any_wires;
  const size_t own_index = input.byte() % (wires + 1);
  // Side by side they may count on an average's being that of all ranks.
  const uint32_t any_divisor = has_order ? ranks : 1U + (way >> 6U);
  const uint32_t divisor = op == ReduceOp::kAverage ? any_divisor : 1;
  const auto members = static_cast<uint32_t>(wires + 1);
  const ClipState clip = named.held() != nullptr ? choose_clip(input, members) : ClipState();
  const Codec& codec = clip.is_held ? *named.held() : in_blocks;
  CombineFinish finish{op, divisor};
  // A finished sum, or one on its way.
  if (clip.is_known && (way & 0x40U) != 0) finish.gathered_ranks = members;
  std::optional<ChannelState> channels;
  size_t first = 0;
  if (codec.flattens() && (input.peek() & 1U) != 0) {
    first = size_t{input.byte()} * codec.block();
    channels.emplace(choose_channels(input));
  }
  Bytes wire = input.bytes(codec.wire_bytes(count));
  Bytes values = choose_values(input, type, count);
  const size_t step = 1 + (way >> 2U) % 4;
  Case made{codec,
            count,
            std::move(wire),
            std::move(values),
            step,
            wires,
            own_index,
            finish,
            {},
            has_order,
            clip,
            std::move(channels),
            first};
  if (shares) made.scales = choose_scales(input, codec, *named.shared_sums(), count);
  return made;
}

Bytes decode_in_parts(const Case& c) {
  const size_t bytes = element_bytes(c.codec.value_type());
  const size_t step = c.step * c.codec.block();
  Bytes out(c.values.size());
  for (size_t begin = 0; begin < c.count; begin += step) {
    c.codec.decode_part(c.wire.data(), {c.count, begin, std::min(step, c.count - begin)},
                        out.data() + begin * bytes, c.place());
  }
  return out;
}

// What one instruction set makes of the input.
struct Outcome {
  Bytes decoded;
  Bytes encoded;
  Bytes sum_wire;
  Bytes sum_values;
  Bytes sum_alone;  // without a wire
  std::vector<float> owed;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run_codec(const Case& c) {
  const size_t bytes = c.values.size();
  const size_t wire_bytes = c.wire.size();
  Outcome out{Bytes(bytes), Bytes(wire_bytes), Bytes(wire_bytes),
              Bytes(bytes), Bytes(bytes),      std::vector<float>(c.first + c.count)};
  c.codec.decode(c.wire.data(), c.count, out.decoded.data(), c.place());
  TERSUM_CHECK(decode_in_parts(c) == out.decoded);
  // With +feedback the sums have in them what this coding lost.
  SlicePlace place = c.place();
  place.owed = c.codec.feeds_back() ? out.owed.data() : nullptr;
  c.codec.encode(c.values.data(), c.count, out.encoded.data(), place);
  std::vector<const std::byte*> wires(c.wires, c.wire.data());
  for (size_t w = 1; w < wires.size(); w += 2) wires[w] = out.encoded.data();
  c.codec.combine(wires, c.values.data(), c.own_index, c.count, c.finish, out.sum_wire.data(),
                  out.sum_values.data(), place);
  c.codec.combine(wires, c.values.data(), c.own_index, c.count, c.finish, nullptr,
                  out.sum_alone.data(), place);
  return out;
}

// The other way round it is the same sum, where the codec says so.
void check_order(const Case& c, const Outcome& outcome) {
  if (!c.codec.quantizes_own() || c.has_order) return;
  std::vector<const std::byte*> wires(c.wires, c.wire.data());
  for (size_t w = 1; w < wires.size(); w += 2) wires[w] = outcome.encoded.data();
  std::reverse(wires.begin(), wires.end());
  Bytes values(c.values.size());
  c.codec.combine(wires, c.values.data(), c.wires - c.own_index, c.count, c.finish, nullptr,
                  values.data(), c.place());
  TERSUM_CHECK(values == outcome.sum_alone);
}

// As decode_payload(), which knows nothing of held calls and of channels.
Status decode_checked(const Case& c, std::span<const std::byte> wire, Bytes& values) {
  if (!c.clip.is_held && !c.has_factors()) {
    const std::string spec = c.codec.spec().to_string();
    return decode_payload(spec, c.codec.value_type(), wire, c.count, values.data());
  }
  TERSUM_RETURN_IF_ERROR(c.codec.check_wire(wire.data(), c.count));
  c.codec.decode(wire.data(), c.count, values.data(), c.place());
  return {};
}

// `wire` was written by an encoder, or a combine that has handed out `values` with it.
void check_written(const Case& c, const Bytes& wire, const Bytes& values) {
  Bytes decoded(values.size());
  TERSUM_CHECK(decode_checked(c, wire, decoded).ok());
  TERSUM_CHECK(decoded == values);
}

void check_block(const Case& c, const Bytes& decoded, size_t begin, size_t end) {
  const DataType type = c.codec.value_type();
  const size_t bytes = element_bytes(type);
  double absmax = 0;
  bool finite = true;
  for (size_t i = begin; i < end; ++i) {
    const float value = load(type, c.values.data() + i * bytes);
    finite = finite && std::isfinite(value);
    absmax = std::max(absmax, std::abs(double{value}));
  }
  const double bound = finite ? c.codec.block_error_bound(absmax) : 0;
  for (size_t i = begin; i < end; ++i) {
    const float value = load(type, c.values.data() + i * bytes);
    const float back = load(type, decoded.data() + i * bytes);
    if (finite) {
      TERSUM_CHECK(std::isfinite(back));
      TERSUM_CHECK(std::abs(double{back} - double{value}) <= bound);
    } else {
      const bool may_stay = !places_are_blocks(c.codec) && std::isfinite(value);
      TERSUM_CHECK(std::isnan(back) || (may_stay && !std::isinf(back)) ||
                   (c.codec.spec().block == 0 && back == value));
    }
  }
}

// decode(encode(values)).
void check_coding(const Case& c, const Bytes& encoded) {
  Bytes decoded(c.values.size());
  c.codec.decode(encoded.data(), c.count, decoded.data(), c.place());
  check_written(c, encoded, decoded);
  if (c.codec.lossless()) TERSUM_CHECK(decoded == c.values);
  if (!is_lossy_type(c.codec.value_type())) return;
  // Held, all of a slice has one scale.
  if (c.clip.is_held) return check_block(c, decoded, 0, c.count);
  for (const auto [begin, end] : block_places(c.codec, c.count)) {
    check_block(c, decoded, begin, end);
  }
}

// What decode_payload accepts is what decode() makes of it, without infinities where there are
// blocks; what it refuses leaves the array alone.
void check_accepted(const Case& c, const Bytes& decoded) {
  const DataType type = c.codec.value_type();
  Bytes out(c.values.size(), kUntouched);
  if (!decode_checked(c, c.wire, out).ok()) {
    TERSUM_CHECK(out == Bytes(out.size(), kUntouched));
    return;
  }
  TERSUM_CHECK(out == decoded);
  if (c.codec.spec().block == 0) return;
  for (size_t i = 0; i < c.count; ++i) {
    TERSUM_CHECK(!std::isinf(load(type, out.data() + i * element_bytes(type))));
  }
}

void check_raw(const Case& c, std::span<const std::byte> raw) {
  if (raw.size() == c.wire.size()) return;
  Bytes out(c.values.size(), kUntouched);
  const std::string spec = c.codec.spec().to_string();
  const Status status = decode_payload(spec, c.codec.value_type(), raw, c.count, out.data());
  TERSUM_CHECK(status.code() == StatusCode::kInvalidArgument);
  TERSUM_CHECK(status.message().find(std::to_string(c.wire.size())) != std::string_view::npos);
  TERSUM_CHECK(out == Bytes(out.size(), kUntouched));
}

void fuzz_codec(FuzzInput input) {
  static const std::vector<std::string> isas = available_isas();
  const std::string& other = input.one_of(std::span<const std::string>(isas));
  const Case c = choose_case(input);
  if (!c.shares() && !c.clip.is_held) check_raw(c, input.rest());
  if (c.count == 0) return;
  TERSUM_CHECK(force_isa(other).ok());
  const Outcome outcome = run_codec(c);
  // The reference comes last of them.
  TERSUM_CHECK(force_isa(isas.back()).ok());
  TERSUM_CHECK(run_codec(c) == outcome);
  check_order(c, outcome);
  if (c.shares()) {
    TERSUM_CHECK(c.codec.check_wire(outcome.encoded.data(), c.count).ok());
    Bytes decoded(c.values.size());
    c.codec.decode(outcome.sum_wire.data(), c.count, decoded.data(), c.place());
    TERSUM_CHECK(decoded == outcome.sum_values);
    return;
  }
  check_accepted(c, outcome.decoded);
  check_coding(c, outcome.encoded);
  check_written(c, outcome.sum_wire, outcome.sum_values);
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tersum::fuzz_codec({data, size});
  return 0;
}
