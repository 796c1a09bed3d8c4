// Sums of encoded contributions and the owner's values, in vectors: decode-add, hop and combine.
#if defined(TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_
#undef TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_
#else
#define TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_
#endif

#include <algorithm>

#include "codec/kernels/block_kernels-inl.h"
#include "codec/kernels/block_reference.h"
#include "codec/kernels/combine_args.h"
#include "codec/kernels/finish-inl.h"
#include "codec/kernels/passes.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// The inputs of a pass, for one block.
struct BlockInputs {
  const std::byte* codes[kWiresPerPass];
  float scales[kWiresPerPass];
  size_t wire_count;
  size_t before;         // wires that come before own, or all if there is no own
  const std::byte* own;  // null: none
  const float* carry;    // null: none
};

enum class PassOutput {
  kTile,           // a partial sum, as it is
  kTileAndMaxima,  // the result, to be encoded
  kValues,         // the result itself
};

template <int kBits>
HWY_INLINE BlockInputs block_inputs(const BlockFormat& format, const PassInputs& in, size_t count,
                                    size_t index, size_t value_bytes, const float* carry) {
  BlockInputs block;
  const size_t codes_at = code_offset(format, count, index);
  for (size_t w = 0; w < in.wire_count; ++w) {
    block.codes[w] = in.wires[w] + codes_at;
    block.scales[w] = load_scale(in.wires[w] + index * kScaleBytes);
  }
  block.wire_count = in.wire_count;
  block.before = in.own != nullptr ? in.own_index : in.wire_count;
  block.own = in.own != nullptr ? in.own + index * format.block * value_bytes : nullptr;
  block.carry = carry;
  return block;
}

template <int kBits, bool kFirst>
HWY_INLINE void add_wire(const BlockInputs& in, size_t w, size_t i, VF (&sum)[kRunVectors]) {
  VF run[kRunVectors];
  load_codes<kBits>(in.codes[w] + i * kBits / 8, run);
  const auto scale = hn::Set(DF(), in.scales[w]);
  for (size_t v = 0; v < kRunVectors; ++v) {
    const auto value = hn::Mul(run[v], scale);
    sum[v] = kFirst ? value : hn::Add(sum[v], value);
  }
}

template <class Format, bool kFirst>
HWY_INLINE void add_values(const std::byte* from, size_t i, VF (&sum)[kRunVectors]) {
  for (size_t v = 0; v < kRunVectors; ++v) {
    const auto value = Format::load(from + (i + v * kLanes) * Format::kBytes);
    sum[v] = kFirst ? value : hn::Add(sum[v], value);
  }
}

// The sum of the 32 values from `i` on. kPair: one wire, own, no carry; the usual case of two ranks
// and of every hop of a ring. Both orders of two terms give the same bits.
template <int kBits, class Format, bool kPair>
HWY_INLINE void sum_run(const BlockInputs& in, size_t i, VF (&sum)[kRunVectors]) {
  if constexpr (kPair) {
    add_wire<kBits, true>(in, 0, i, sum);
    add_values<Format, false>(in.own, i, sum);
    return;
  }
  size_t w = 0;
  bool own_pending = in.own != nullptr;
  if (in.carry != nullptr) {
    add_values<Float32Format, true>(reinterpret_cast<const std::byte*>(in.carry), i, sum);
  } else if (own_pending && in.before == 0) {
    add_values<Format, true>(in.own, i, sum);
    own_pending = false;
  } else {
    add_wire<kBits, true>(in, w++, i, sum);
  }
  for (; w < in.before; ++w) add_wire<kBits, false>(in, w, i, sum);
  if (own_pending) add_values<Format, false>(in.own, i, sum);
  for (; w < in.wire_count; ++w) add_wire<kBits, false>(in, w, i, sum);
}

// One block of one pass. `maxima`: where its partial maxima go; `values`: where its result goes.
template <int kBits, class Format, bool kPair, PassOutput kOutput>
HWY_INLINE void sum_block(const BlockInputs& in, size_t block, const VectorFinish& finish,
                          float* tile, int32_t* maxima, std::byte* values) {
  auto maximum = hn::Zero(DI());
  for (size_t i = 0; i < block; i += kNibbleGroup) {
    VF sum[kRunVectors];
    sum_run<kBits, Format, kPair>(in, i, sum);
    if constexpr (kOutput != PassOutput::kTile) finish.apply(sum);
    for (size_t v = 0; v < kRunVectors; ++v) {
      if constexpr (kOutput == PassOutput::kValues) {
        Format::store(sum[v], values + (i + v * kLanes) * Format::kBytes);
      } else {
        hn::Store(sum[v], DF(), tile + i + v * kLanes);
      }
      if constexpr (kOutput == PassOutput::kTileAndMaxima) {
        maximum = hn::Max(maximum, magnitude_bits(sum[v]));
      }
    }
  }
  if constexpr (kOutput == PassOutput::kTileAndMaxima) hn::Store(maximum, DI(), maxima);
}

// Blocks first..first+blocks-1 of one pass.
template <int kBits, class Format, bool kPair, PassOutput kOutput>
HWY_INLINE void sum_group(const BlockFormat& format, const PassInputs& in, const CombineArgs& args,
                          size_t first, size_t blocks, float* tile, GroupScales& group) {
  const VectorFinish finish(args.finish);
  for (size_t b = 0; b < blocks; ++b) {
    float* const block_tile = tile + b * format.block;
    const auto block = block_inputs<kBits>(format, in, args.count, first + b, Format::kBytes,
                                           in.carries ? block_tile : nullptr);
    auto* const values =
        static_cast<std::byte*>(args.values_out) + (first + b) * format.block * Format::kBytes;
    sum_block<kBits, Format, kPair, kOutput>(block, format.block, finish, block_tile,
                                             group.maxima + b * kLanes, values);
  }
  if constexpr (kOutput == PassOutput::kTileAndMaxima) {
    for (size_t b = blocks; b < kGroupBlocks; ++b) {
      hn::Store(hn::Zero(DI()), DI(), group.maxima + b * kLanes);
    }
  }
}

// All passes but the last, which is returned; the sum so far is then in `tile`.
template <int kBits, class Format>
HWY_NOINLINE PassInputs sum_early_passes(const BlockFormat& format, const CombineArgs& args,
                                         size_t first, size_t blocks, float* tile,
                                         GroupScales& group) {
  PassInputs pass = make_pass(args, 0);
  for (size_t done = 0; !pass.last; pass = make_pass(args, done)) {
    sum_group<kBits, Format, false, PassOutput::kTile>(format, pass, args, first, blocks, tile,
                                                       group);
    done += pass.wire_count;
  }
  return pass;
}

template <int kBits, class Format>
HWY_INLINE void encode_result(const BlockFormat& format, const CombineArgs& args, size_t first,
                              size_t blocks, const float* tile, GroupScales& group) {
  std::byte* const scales = args.wire_out + first * kScaleBytes;
  std::byte* const codes = args.wire_out + code_offset(format, args.count, first);
  if (args.values_out == nullptr) {
    encode_group<kBits>(format, tile, blocks, group, NoValues(), scales, codes);
  } else {
    auto* const values = static_cast<std::byte*>(args.values_out);
    const ValuesOut<Format> out{values + first * format.block * Format::kBytes};
    encode_group<kBits>(format, tile, blocks, group, out, scales, codes);
  }
}

template <int kBits, class Format, bool kPair>
HWY_INLINE void combine_groups(const BlockFormat& format, const CombineArgs& args) {
  GroupScales group;
  HWY_ALIGN float tile[kGroupValues];
  const size_t whole = args.count / format.block;
  const size_t step = group_blocks(format);
  for (size_t b = 0; b < whole; b += step) {
    const size_t blocks = std::min(step, whole - b);
    const PassInputs last = sum_early_passes<kBits, Format>(format, args, b, blocks, tile, group);
    if (args.wire_out == nullptr) {
      sum_group<kBits, Format, kPair, PassOutput::kValues>(format, last, args, b, blocks, tile,
                                                           group);
    } else {
      sum_group<kBits, Format, kPair, PassOutput::kTileAndMaxima>(format, last, args, b, blocks,
                                                                  tile, group);
      encode_result<kBits, Format>(format, args, b, blocks, tile, group);
    }
  }
}

template <int kBits, class Format>
HWY_NOINLINE void combine_slice(const BlockFormat& format, const CombineArgs& args) {
  const size_t whole = args.count / format.block;
  if (args.wire_count == 1 && args.own != nullptr) {
    combine_groups<kBits, Format, true>(format, args);
  } else {
    combine_groups<kBits, Format, false>(format, args);
  }
  if (whole * format.block < args.count) combine_slice_block(format, args, whole);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_
