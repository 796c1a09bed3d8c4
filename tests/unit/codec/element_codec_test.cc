// The formats of the registry, as codecs: one set of bytes on every instruction set, the same bytes
// as the kernels of int8 and int4 where both can, and what bad payloads come to.
#include "codec/element_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/element_formats.h"
#include "codec/kernels/dispatch.h"
#include "golden_tables.h"
#include "golden_transforms.h"
#include "nasty_values.h"
#include "tersum/codec_payload.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

std::string draw_spec() {
  const auto rows = format_rows();
  const auto tables = golden_tables();
  const size_t drawn = *rc::gen::inRange<size_t>(2, rows.size() + tables.size());
  const bool is_table = drawn >= rows.size();
  const FormatRow& row = is_table ? format_row({.format = kTableFormat}) : rows[drawn];
  const std::string base = is_table ? tables[drawn - rows.size()] : std::string(row.name);
  uint32_t block = row.block_min;
  while (block < row.block_max && *rc::gen::arbitrary<bool>()) block *= 2;
  if (row.shares) {
    const std::string plain = base + "/" + std::to_string(block);
    const std::string rounded = plain + *rc::gen::element("", "+sr");
    return parse_codec_spec(rounded).ok() ? rounded : plain;
  }
  std::vector<std::string> turns = {"", "", "+hadamard"};
  for (const std::string& transform : golden_transforms(block)) turns.push_back(transform);
  const std::string turn = row.rotates ? *rc::gen::elementOf(turns) : "";
  const auto* const in_rows = *rc::gen::element("", "", "", "+rows:3", "+rows:70", "+rows:1500");
  const auto* const sparse =
      *rc::gen::element("", "", "", "+sparse:0.2%", "+sparse:3%", "+sparse:10%");
  const std::string spec = base + "/" + std::to_string(block) + in_rows + sparse + turn;
  // Not every format takes each of these.
  const std::string laid_out = spec + *rc::gen::element("", "+mixed", "+adaptive", "+sr", "+sr",
                                                        "+shiftadd", "+shiftadd", "+clip:learned");
  return parse_codec_spec(laid_out).ok() ? laid_out : spec;
}

const Codec& codec_of(const std::string& spec, DataType type) {
  return *find_codec(spec, type, ReduceOp::kSum).value();
}

size_t draw_length() {
  return *rc::gen::oneOf(rc::gen::inRange<size_t>(0, 200), rc::gen::inRange<size_t>(0, 7000),
                         rc::gen::element<size_t>(96, 1024, 3071, 3072, 3073, 4999, 6144));
}

Bytes encode(const Codec& codec, const Bytes& values, size_t count) {
  GuardedBytes in(values.size(), 4);
  in.fill(values);
  GuardedBytes out(codec.wire_bytes(count), 3);
  if (count > 0) codec.encode(in.data(), count, out.data());
  RC_ASSERT(in.intact() && out.intact());
  return out.copy();
}

Bytes decode(const Codec& codec, const Bytes& wire, size_t count) {
  GuardedBytes in(wire.size(), 1);
  in.fill(wire);
  GuardedBytes out(count * element_bytes(codec.value_type()), 2);
  if (count > 0) codec.decode(in.data(), count, out.data());
  RC_ASSERT(out.intact());
  return out.copy();
}

// The same, a few blocks at a time.
Bytes decode_in_parts(const Codec& codec, const Bytes& wire, size_t count) {
  const size_t value_bytes = element_bytes(codec.value_type());
  const size_t step = size_t{codec.block()} * 3;
  Bytes out(count * value_bytes);
  for (size_t begin = 0; begin < count; begin += step) {
    const size_t part = std::min(step, count - begin);
    codec.decode_part(wire.data(), {count, begin, part}, out.data() + begin * value_bytes);
  }
  return out;
}

struct Sum {
  Bytes wire;
  Bytes values;
  friend bool operator==(const Sum&, const Sum&) = default;
};

// Own is contribution number 1; `in_place`: the result over it.
Sum combine(const Codec& codec, const std::vector<Bytes>& wires, const Bytes& own, size_t count,
            const CombineFinish& finish, bool to_wire, bool in_place) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& wire : wires) pointers.push_back(wire.data());
  Bytes mine = own;
  Sum sum{Bytes(to_wire ? codec.wire_bytes(count) : 0), Bytes(own.size())};
  Bytes& values = in_place ? mine : sum.values;
  if (count > 0) {
    codec.combine(pointers, mine.data(), 1, count, finish, to_wire ? sum.wire.data() : nullptr,
                  values.data());
  }
  if (in_place) sum.values = mine;
  return sum;
}

RC_GTEST_PROP(ElementCodecs, give_the_same_bytes_on_every_target, ()) {
  const DataType type = kTypes[*rc::gen::inRange(0, 3)];
  const Codec& codec = codec_of(draw_spec(), type);
  const size_t count = draw_length();
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const bool to_wire = *rc::gen::arbitrary<bool>();
  const bool in_place = *rc::gen::arbitrary<bool>();
  const CombineFinish finish{ReduceOp::kAverage, *rc::gen::element<uint32_t>(1, 2, 3, 8)};
  const Bytes values = nasty_elements(seed, count, type);
  std::mt19937_64 random(seed);
  Bytes noise(codec.wire_bytes(count));
  for (auto& byte : noise) byte = static_cast<std::byte>(random());

  Bytes wire;
  Bytes decoded;
  Sum sum;
  std::vector<int64_t> targets = available_targets();
  for (auto target = targets.rbegin(); target != targets.rend(); ++target) {
    RC_LOG() << codec.spec().to_string() << ", " << std::string(target_name(*target)) << ", seed "
             << seed << "\n";
    force_target(*target);
    const Bytes got = encode(codec, values, count);
    const Bytes back = decode(codec, noise, count);
    const Sum total = combine(codec, {got, noise, got}, values, count, finish, to_wire, in_place);
    const bool first = target == targets.rbegin();
    if (first) {
      wire = got;
      decoded = back;
      sum = total;
    }
    RC_ASSERT(got == wire);
    RC_ASSERT(back == decoded);
    RC_ASSERT(decode_in_parts(codec, noise, count) == decoded);
    RC_ASSERT(total == sum);
    if (to_wire && count > 0) RC_ASSERT(decode(codec, total.wire, count) == total.values);
  }
  unforce_target();
}

RC_GTEST_PROP(ElementCodecs, int8_and_int4_are_those_of_their_own_kernels, ()) {
  const DataType type = kTypes[*rc::gen::inRange(0, 3)];
  const bool eight = *rc::gen::arbitrary<bool>();
  const uint32_t block = 32U << *rc::gen::inRange(0, 6);
  const std::string spec = (eight ? "int8/" : "int4/") + std::to_string(block);
  const auto general =
      make_element_codec({.block = block}, eight ? integer_format<8>() : integer_format<4>(), type);
  const Codec& own = codec_of(spec, type);
  const size_t count = draw_length();
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const Bytes values = nasty_elements(seed, count, type);
  const Bytes wire = encode(own, values, count);
  RC_ASSERT(encode(*general, values, count) == wire);
  RC_ASSERT(decode(*general, wire, count) == decode(own, wire, count));
  const CombineFinish finish{ReduceOp::kAverage, 3};
  RC_ASSERT(combine(*general, {wire, wire}, values, count, finish, true, false) ==
            combine(own, {wire, wire}, values, count, finish, true, false));
}

TEST(ElementCodecs, PayloadsOfAnotherLengthOrWithImpossibleBytesAreRefused) {
  const std::vector<float> values(100, 1.5F);
  const auto decode_status = [&](const std::string& spec, std::span<const std::byte> payload) {
    std::vector<float> out(values.size(), 7);
    const Status status = decode_payload(spec, DataType::kFloat32, payload, out.size(), out.data());
    if (!status.ok()) {
      EXPECT_EQ(out, std::vector<float>(values.size(), 7));
    }
    return status;
  };
  for (const FormatRow& row : format_rows()) {
    const std::string spec(row.name);
    Bytes payload = encode_payload(spec, DataType::kFloat32, values.data(), values.size()).value();
    EXPECT_TRUE(decode_status(spec, payload).ok()) << spec;
    for (size_t cut = 0; cut < payload.size(); ++cut) {
      EXPECT_FALSE(decode_status(spec, std::span(payload).first(cut)).ok()) << spec << " " << cut;
    }
    payload.push_back(std::byte{0});
    EXPECT_FALSE(decode_status(spec, payload).ok()) << spec;
  }
  Bytes payload =
      encode_payload("int6/32", DataType::kFloat32, values.data(), values.size()).value();
  payload[3] = std::byte{0xff};
  EXPECT_THAT(decode_status("int6/32", payload).message(), testing::HasSubstr("block 1"));
  // Five: all planes of the first triple set is 127.
  payload = encode_payload("five/32", DataType::kFloat32, values.data(), values.size()).value();
  for (size_t plane = 0; plane < 7; ++plane) payload[8 + 4 * plane] |= std::byte{1};
  EXPECT_THAT(decode_status("five/32", payload).message(), testing::HasSubstr("value 0"));
}

}  // namespace
}  // namespace tersum
