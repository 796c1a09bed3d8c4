// Encode and decode of the block formats in vectors.
#if defined(TERSUM_CODEC_KERNELS_BLOCK_CODING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_BLOCK_CODING_INL_H_
#undef TERSUM_CODEC_KERNELS_BLOCK_CODING_INL_H_
#else
#define TERSUM_CODEC_KERNELS_BLOCK_CODING_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "codec/kernels/block_codes-inl.h"
#include "codec/kernels/block_reference.h"
#include "codec/kernels/block_scales-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Values of a group at most. Two groups of float32 are in flight: 16 KiB, half of an L1.
inline constexpr size_t kGroupValues = 2048;

// Blocks that go through the group machinery together.
HWY_INLINE size_t group_blocks(const BlockFormat& format) {
  return std::min<size_t>(kGroupBlocks, kGroupValues / format.block);
}

// The partial maxima of the blocks that a group lacks.
HWY_INLINE void clear_maxima(size_t blocks, GroupScales& group) {
  for (size_t b = blocks; b < kGroupBlocks; ++b) {
    hn::Store(hn::Zero(DI()), DI(), group.maxima + b * kLanes);
  }
}

// Partial maxima of `blocks` whole blocks.
HWY_INLINE void find_maxima(const float* HWY_RESTRICT from, size_t block, size_t blocks,
                            GroupScales& group) {
  const DF df;
  for (size_t b = 0; b < blocks; ++b, from += block) {
    auto even = hn::Zero(DI());
    auto odd = even;
    for (size_t i = 0; i < block; i += kNibbleGroup) {
      for (size_t v = 0; v < kRunVectors; v += 2) {
        even = hn::Max(even, magnitude_bits(hn::LoadU(df, from + i + v * kLanes)));
        odd = hn::Max(odd, magnitude_bits(hn::LoadU(df, from + i + (v + 1) * kLanes)));
      }
      prefetch_ahead<kNibbleGroup * sizeof(float) / kLineBytes>(from + i);
    }
    hn::Store(hn::Max(even, odd), DI(), group.maxima + b * kLanes);
  }
  clear_maxima(blocks, group);
}

// Blocks first..first+blocks-1 of a slice, on their way to the wire.
struct Group {
  GroupScales scales;
  HWY_ALIGN float tile[kGroupValues];
  const float* values = nullptr;  // `tile` or the caller's
  size_t first = 0;
  size_t blocks = 0;
};

// Encodes groups, each when the next one has been pushed: by then its scales are known, and a core
// that runs ahead never waits for them.
template <int kBits, class Format>
class GroupEncoder {
 public:
  // Blocks from number `first` on of a slice of `count` values; groups count theirs from there.
  // `values`: where the decoding of the wire goes, or null.
  HWY_INLINE GroupEncoder(const BlockFormat& format, size_t count, size_t first, std::byte* wire,
                          std::byte* values)
      : format_(format),
        scales_(wire + first * kScaleBytes),
        codes_(wire + code_offset(format, count, first)),
        out_(values) {}

  // The group that the next push() takes: everything in it is to be filled, but `tile` only if it
  // is used.
  HWY_INLINE Group& next() { return groups_[pushed_ % 2]; }
  HWY_INLINE void push() {
    compute_scales(format_, next().scales);
    ++pushed_;
    if (pushed_ > 1) encode(groups_[pushed_ % 2]);
  }
  // After the last push.
  HWY_INLINE void finish() {
    if (pushed_ > 0) encode(groups_[(pushed_ + 1) % 2]);
  }

 private:
  HWY_INLINE void encode(const Group& group) const {
    std::byte* const scales = scales_ + group.first * kScaleBytes;
    if (group.blocks == kGroupBlocks) {
      std::memcpy(scales, group.scales.wire, kGroupBlocks * kScaleBytes);
    } else {
      std::memcpy(scales, group.scales.wire, group.blocks * kScaleBytes);
    }
    const size_t at = group.first * format_.block;
    std::byte* const codes = codes_ + at * kBits / 8;
    if (out_ == nullptr) {
      quantize_group<kBits>(format_, group.values, group.blocks, group.scales, NoValues(), codes);
    } else {
      const ValuesOut<Format> out{out_ + at * Format::kBytes};
      quantize_group<kBits>(format_, group.values, group.blocks, group.scales, out, codes);
    }
  }

  const BlockFormat& format_;
  std::byte* scales_;
  std::byte* codes_;
  std::byte* out_;
  size_t pushed_ = 0;
  Group groups_[2];
};

template <class Format>
HWY_INLINE void load_tile(const std::byte* HWY_RESTRICT from, size_t count,
                          float* HWY_RESTRICT tile) {
  for (size_t i = 0; i < count; i += kLanes) {
    hn::Store(Format::load(from + i * Format::kBytes), DF(), tile + i);
  }
}

template <int kBits, class Format>
HWY_NOINLINE void encode_whole_blocks(const BlockFormat& format, const void* values, size_t count,
                                      size_t first, size_t blocks, std::byte* wire) {
  const size_t block = format.block;
  const size_t step = group_blocks(format);
  GroupEncoder<kBits, Format> encoder(format, count, first, wire, nullptr);
  for (size_t b = 0; b < blocks; b += step) {
    Group& group = encoder.next();
    group.first = b;
    group.blocks = std::min(step, blocks - b);
    const auto* const bytes = static_cast<const std::byte*>(values) + b * block * Format::kBytes;
    if constexpr (Format::kBytes == 4) {
      group.values = reinterpret_cast<const float*>(bytes);
    } else {
      load_tile<Format>(bytes, group.blocks * block, group.tile);
      group.values = group.tile;
    }
    find_maxima(group.values, block, group.blocks, group.scales);
    encoder.push();
  }
  encoder.finish();
}

template <int kBits, class Format>
void encode_slice(const BlockFormat& format, const void* values, size_t count, std::byte* wire) {
  const size_t block = format.block;
  const size_t whole = count / block;
  encode_whole_blocks<kBits, Format>(format, values, count, 0, whole, wire);
  if (whole * block < count) encode_slice_block(format, values, count, whole, wire);
}

template <int kBits, class Format>
HWY_NOINLINE void decode_whole_blocks(const BlockFormat& format, const std::byte* wire,
                                      size_t count, size_t first, size_t blocks, void* values) {
  const size_t block = format.block;
  const std::byte* const scales = wire + first * kScaleBytes;
  const std::byte* const codes = wire + code_offset(format, count, first);
  auto* const to = static_cast<std::byte*>(values);
  for (size_t b = 0; b < blocks; ++b) {
    decode_block<kBits, Format>(codes + b * block * kBits / 8, load_scale(scales + b * kScaleBytes),
                                block, to + b * block * Format::kBytes);
  }
}

template <int kBits, class Format>
void decode_slice(const BlockFormat& format, const std::byte* wire, size_t count, void* values) {
  const size_t block = format.block;
  const size_t whole = count / block;
  decode_whole_blocks<kBits, Format>(format, wire, count, 0, whole, values);
  if (whole * block < count) decode_slice_block(format, wire, count, whole, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_BLOCK_CODING_INL_H_
