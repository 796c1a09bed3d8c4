// Every instruction set that this CPU runs gives the reference's bytes, and writes nothing else.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "codec/block_codec.h"
#include "codec/codec.h"
#include "codec/kernels/block_kernels.h"
#include "codec/kernels/dense_kernels.h"
#include "codec/kernels/dispatch.h"
#include "nasty_values.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DataType kTypeOfKind[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

BlockFormat draw_block_format() {
  const auto kind = static_cast<ValueKind>(*rc::gen::inRange(0, 3));
  const int bits = *rc::gen::element(8, 4);
  return make_block_format(kind, bits, 32u << *rc::gen::inRange(0, 6));
}

DenseFormat draw_dense_format() {
  const int choice = *rc::gen::inRange(0, kDataTypeCount + 2);
  if (choice == kDataTypeCount) return {DataType::kFloat32, DenseWire::kBFloat16};
  if (choice == kDataTypeCount + 1) return {DataType::kFloat16, DenseWire::kBFloat16};
  return {static_cast<DataType>(choice), DenseWire::kExact};
}

size_t draw_count() {
  return *rc::gen::oneOf(rc::gen::inRange<size_t>(0, 70), rc::gen::inRange<size_t>(0, 5001),
                         rc::gen::element<size_t>(31, 127, 128, 1021, 1024, 2053, 4096, 4999));
}

size_t draw_offset() { return *rc::gen::element<size_t>(0, 0, 1, 2, 3, 4, 17, 63); }

// How a combine is called, but for its memory.
struct CombineCase {
  size_t wire_count = 1;
  bool has_own = true;
  size_t own_index = 0;
  Finish finish;
  bool to_wire = false;
  bool to_values = true;
  bool in_place = false;
  // What is added to own values, which begin at number added_first of it; empty: nothing.
  Bytes residual;
  Bytes bias;
  size_t added_first = 0;
};

CombineCase draw_combine(bool sums_only) {
  CombineCase c;
  c.wire_count = *rc::gen::weightedOneOf<size_t>(
      {{3, rc::gen::inRange<size_t>(0, 4)}, {2, rc::gen::inRange<size_t>(4, 28)}});
  c.has_own = c.wire_count == 0 || *rc::gen::weightedElement<bool>({{3, true}, {1, false}});
  c.own_index = *rc::gen::inRange<size_t>(0, c.wire_count + 1);
  c.finish.op = static_cast<ReduceOp>(*rc::gen::inRange(0, sums_only ? 2 : 4));
  if (c.finish.op == ReduceOp::kAverage) {
    c.finish.divisor = *rc::gen::element<uint32_t>(1, 2, 3, 4, 7, 8, 9, 256, 1000003);
  }
  c.to_wire = *rc::gen::arbitrary<bool>();
  c.to_values = !c.to_wire || *rc::gen::arbitrary<bool>();
  c.in_place = c.has_own && c.to_values && *rc::gen::arbitrary<bool>();
  return c;
}

void draw_terms(const BlockFormat& format, DataType type, size_t count, CombineCase& c) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  c.added_first = kNibbleGroup * *rc::gen::inRange<size_t>(0, 100);
  if (*rc::gen::arbitrary<bool>()) c.residual = nasty_elements(seed, c.added_first + count, type);
  const size_t period = format.block + kNibbleGroup * *rc::gen::inRange<size_t>(0, 100);
  if (*rc::gen::arbitrary<bool>()) c.bias = nasty_elements(seed + 1, period, type);
}

struct CombineResult {
  Bytes wire;
  Bytes values;
  bool intact = true;
  friend bool operator==(const CombineResult&, const CombineResult&) = default;
};

template <class Kernels, class Format>
CombineResult run_combine(const Kernels& kernels, const Format& format, const CombineCase& c,
                          const std::vector<Bytes>& wires, const Bytes& own, size_t count,
                          size_t wire_bytes, size_t offset) {
  std::vector<GuardedBytes> wire_memory;
  for (const Bytes& wire : wires) wire_memory.emplace_back(wire.size(), offset).fill(wire);
  std::vector<const std::byte*> pointers;
  pointers.reserve(wires.size());
  for (const GuardedBytes& memory : wire_memory) pointers.push_back(memory.data());
  GuardedBytes own_memory(own.size(), offset);
  own_memory.fill(own);
  GuardedBytes wire_out(wire_bytes, offset);
  GuardedBytes values_out(own.size(), offset);
  GuardedBytes& result = c.in_place ? own_memory : values_out;

  CombineArgs args;
  args.wires = pointers.data();
  args.wire_count = c.wire_count;
  args.own = c.has_own ? own_memory.data() : nullptr;
  args.own_index = c.own_index;
  args.count = args.slice_count = count;
  args.finish = c.finish;
  args.wire_out = c.to_wire ? wire_out.data() : nullptr;
  args.values_out = c.to_values ? result.data() : nullptr;
  const size_t value_bytes = count == 0 ? 1 : own.size() / count;
  args.added = {c.residual.empty() ? nullptr : c.residual.data(),
                c.bias.empty() ? nullptr : c.bias.data(), c.bias.size() / value_bytes};
  args.added_first = c.added_first;
  kernels.combine(format, args);
  bool intact = own_memory.intact() && wire_out.intact() && values_out.intact();
  for (const GuardedBytes& memory : wire_memory) intact = intact && memory.intact();
  return {wire_out.copy(), result.copy(), intact};
}

template <class Kernels, class Format>
Bytes run_encode(const Kernels& kernels, const Format& format, const Bytes& values, size_t count,
                 size_t wire_bytes, size_t offset) {
  GuardedBytes in(values.size(), offset);
  in.fill(values);
  GuardedBytes out(wire_bytes, (offset + 5) % 64);
  kernels.encode(format, in.data(), count, out.data());
  RC_ASSERT(in.intact() && out.intact());
  return out.copy();
}

template <class Kernels, class Format>
Bytes run_decode(const Kernels& kernels, const Format& format, const Bytes& wire, size_t count,
                 size_t value_bytes, size_t offset) {
  GuardedBytes in(wire.size(), (offset + 5) % 64);
  in.fill(wire);
  GuardedBytes out(value_bytes, offset);
  kernels.decode(format, in.data(), count, out.data());
  RC_ASSERT(in.intact() && out.intact());
  return out.copy();
}

template <class KernelsOf, class Format>
void check_coding(const KernelsOf& kernels_of, const Format& format, DataType type, size_t count,
                  size_t wire_bytes) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const size_t offset = draw_offset();
  const Bytes values = nasty_elements(seed, count, type);
  const auto& reference = kernels_of(kReferenceTarget);
  const Bytes wire = run_encode(reference, format, values, count, wire_bytes, offset);
  // Half of the time decode bytes that nobody encoded: any bytes must decode alike.
  Bytes received = wire;
  if (*rc::gen::arbitrary<bool>()) {
    std::mt19937_64 random(seed);
    for (auto& byte : received) byte = static_cast<std::byte>(random());
  }
  const Bytes decoded = run_decode(reference, format, received, count, values.size(), offset);
  for (const int64_t target : available_targets()) {
    RC_LOG() << "target " << std::string(target_name(target)) << ", seed " << seed << "\n";
    const auto& kernels = kernels_of(target);
    RC_ASSERT(run_encode(kernels, format, values, count, wire_bytes, offset) == wire);
    RC_ASSERT(run_decode(kernels, format, received, count, values.size(), offset) == decoded);
  }
}

template <class KernelsOf, class Format>
void check_combine(const KernelsOf& kernels_of, const Format& format, DataType type, size_t count,
                   size_t wire_bytes, bool sums_only) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const size_t offset = draw_offset();
  CombineCase c = draw_combine(sums_only);
  if constexpr (std::is_same_v<Format, BlockFormat>) draw_terms(format, type, count, c);
  const auto& reference = kernels_of(kReferenceTarget);
  std::mt19937_64 random(seed);
  std::vector<Bytes> wires;
  for (size_t w = 0; w < c.wire_count; ++w) {
    const Bytes values = nasty_elements(seed + 1 + w, count, type);
    wires.push_back(run_encode(reference, format, values, count, wire_bytes, 0));
    if (random() % 4 != 0) continue;
    // Bytes that nobody encoded: scales that are negative, huge, NaN; codes that are never written.
    for (auto& byte : wires.back()) byte = static_cast<std::byte>(random());
  }
  const Bytes own = nasty_elements(seed, count, type);
  const CombineResult expected =
      run_combine(reference, format, c, wires, own, count, wire_bytes, offset);
  RC_ASSERT(expected.intact);
  for (const int64_t target : available_targets()) {
    RC_LOG() << "target " << std::string(target_name(target)) << ", seed " << seed << ", wires "
             << c.wire_count << ", own " << c.has_own << " at " << c.own_index << ", op "
             << static_cast<int>(c.finish.op) << " / " << c.finish.divisor << ", to wire "
             << c.to_wire << ", to values " << c.to_values << ", in place " << c.in_place << "\n";
    const CombineResult got =
        run_combine(kernels_of(target), format, c, wires, own, count, wire_bytes, offset);
    RC_ASSERT(got == expected);
  }
}

auto kernels_for(const BlockFormat& format) {
  return
      [&format](int64_t target) -> const BlockKernels& { return block_kernels_of(format, target); };
}
auto kernels_for(const DenseFormat& format) {
  return
      [&format](int64_t target) -> const DenseKernels& { return dense_kernels_of(format, target); };
}

RC_GTEST_PROP(BlockKernels, encode_and_decode_agree_on_every_target, ()) {
  const BlockFormat format = draw_block_format();
  const size_t count = draw_count();
  check_coding(kernels_for(format), format, kTypeOfKind[static_cast<int>(format.kind)], count,
               slice_bytes(format, count));
}

RC_GTEST_PROP(BlockKernels, combine_agrees_on_every_target, ()) {
  const BlockFormat format = draw_block_format();
  const size_t count = draw_count();
  check_combine(kernels_for(format), format, kTypeOfKind[static_cast<int>(format.kind)], count,
                slice_bytes(format, count), true);
}

RC_GTEST_PROP(DenseKernels, encode_and_decode_agree_on_every_target, ()) {
  const DenseFormat format = draw_dense_format();
  const size_t count = draw_count();
  check_coding(kernels_for(format), format, format.type, count, dense_wire_bytes(format, count));
}

RC_GTEST_PROP(DenseKernels, combine_agrees_on_every_target, ()) {
  const DenseFormat format = draw_dense_format();
  const size_t count = draw_count();
  check_combine(kernels_for(format), format, format.type, count, dense_wire_bytes(format, count),
                format.wire == DenseWire::kBFloat16);
}

// A codec, which leaves a slice that ends in much of a block to other kernels, called as those.
struct CodecKernels {
  std::unique_ptr<Codec> codec;

  void encode(const BlockFormat& /*format*/, const void* values, size_t count,
              std::byte* wire) const {
    codec->encode(values, count, wire, {});
  }
  void decode(const BlockFormat& /*format*/, const std::byte* wire, size_t count,
              void* values) const {
    codec->decode(wire, count, values, {});
  }
  void combine(const BlockFormat& /*format*/, const CombineArgs& args) const {
    SlicePlace place;
    place.first = args.added_first;
    place.added = args.added;
    CombineFinish finish;
    finish.op = args.finish.op;
    finish.divisor = args.finish.divisor;
    codec->combine({args.wires, args.wire_count}, args.own, args.own_index, args.count, finish,
                   args.wire_out, args.values_out, place);
  }
};

RC_GTEST_PROP(BlockCodec, writes_and_reads_what_the_reference_does, ()) {
  const BlockFormat format = draw_block_format();
  const DataType type = kTypeOfKind[static_cast<int>(format.kind)];
  const size_t count = 1 + draw_count();
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const size_t offset = draw_offset();
  const size_t wire_bytes = slice_bytes(format, count);
  const CodecKernels codec{make_block_codec(format.code_max == 127 ? 8 : 4, format.block, type)};
  const BlockKernels& reference = block_kernels_of(format, kReferenceTarget);
  CombineCase c = draw_combine(true);
  draw_terms(format, type, count, c);
  const Bytes values = nasty_elements(seed, count, type);
  const Bytes wire = run_encode(reference, format, values, count, wire_bytes, offset);
  RC_ASSERT(run_encode(codec, format, values, count, wire_bytes, offset) == wire);
  RC_ASSERT(run_decode(codec, format, wire, count, values.size(), offset) ==
            run_decode(reference, format, wire, count, values.size(), offset));
  std::vector<Bytes> wires;
  for (size_t w = 0; w < c.wire_count; ++w) {
    const Bytes theirs = nasty_elements(seed + 1 + w, count, type);
    wires.push_back(run_encode(reference, format, theirs, count, wire_bytes, offset));
  }
  const CombineResult got = run_combine(codec, format, c, wires, values, count, wire_bytes, offset);
  RC_ASSERT(got.intact);
  RC_ASSERT(got == run_combine(reference, format, c, wires, values, count, wire_bytes, offset));
}

// One block of every size at the edges that decide between the vector and the scalar path.
TEST(BlockKernels, EveryBlockAndLengthAroundItAgrees) {
  for (const int bits : {8, 4}) {
    for (uint32_t block = kBlockMin; block <= kBlockMax; block *= 2) {
      const BlockFormat format = make_block_format(ValueKind::kFloat32, bits, block);
      for (const size_t count : {size_t{1}, size_t{block} - 1, size_t{block}, size_t{block} + 1,
                                 size_t{17} * block, size_t{16} * block + 33}) {
        const Bytes values = nasty_elements(block + count, count, DataType::kFloat32);
        Bytes expected(slice_bytes(format, count));
        block_kernels_of(format, kReferenceTarget)
            .encode(format, values.data(), count, expected.data());
        for (const int64_t target : available_targets()) {
          Bytes got(expected.size());
          block_kernels_of(format, target).encode(format, values.data(), count, got.data());
          EXPECT_EQ(got, expected) << "int" << bits << "/" << block << ", " << count << " values, "
                                   << target_name(target);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tersum
