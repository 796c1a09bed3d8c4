// Tiles of float32 from and to values; sums, ends of sums and block maxima.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_TILES_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_TILES_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_TILES_INL_H_
#endif

#include "codec/kernels/block_scales-inl.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/finish-inl.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/vector_formats-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Here a slice is read and written for the first time, so here what comes next is asked for.
template <class Format>
HWY_NOINLINE size_t load_vectors(const void* values, size_t first, size_t count, float* tile) {
  const auto* const from = static_cast<const std::byte*>(values) + first * Format::kBytes;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::Store(Format::load(from + i * Format::kBytes), DF(), tile + i);
    prefetch_ahead<1>(from + i * Format::kBytes);
  }
  return i;
}

template <class Format>
HWY_NOINLINE size_t store_vectors(const float* tile, size_t count, void* values, size_t first) {
  auto* const to = static_cast<std::byte*>(values) + first * Format::kBytes;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Format::store(hn::Load(DF(), tile + i), to + i * Format::kBytes);
    prefetch_ahead<1>(to + i * Format::kBytes);
  }
  return i;
}

// Calls body.operator()<Format>() with the format that values of this kind have.
template <class Body>
HWY_INLINE size_t with_format(ValueKind kind, const Body& body) {
  switch (kind) {
    case ValueKind::kFloat32:
      return body.template operator()<Float32Format>();
    case ValueKind::kBFloat16:
      return body.template operator()<BFloat16Format>();
    case ValueKind::kFloat16:
      return body.template operator()<Float16Format>();
  }
  return 0;
}

void load_tile(ValueKind kind, const void* values, size_t first, size_t count, float* tile) {
  const size_t done = with_format(
      kind, [&]<class Format>() { return load_vectors<Format>(values, first, count, tile); });
  element_reference().load(kind, values, first + done, count - done, tile + done);
}

void store_tile(ValueKind kind, const float* tile, size_t count, void* values, size_t first) {
  const size_t done = with_format(
      kind, [&]<class Format>() { return store_vectors<Format>(tile, count, values, first); });
  element_reference().store(kind, tile + done, count - done, values, first + done);
}

// What lies between count and the next whole vector is padding that may hold anything.
void add_tile(const float* terms, size_t count, float* HWY_RESTRICT tile) {
  const DF df;
  for (size_t i = 0; i < count; i += kLanes) {
    hn::Store(hn::Add(hn::Load(df, tile + i), hn::LoadU(df, terms + i)), df, tile + i);
    prefetch_ahead<1>(terms + i);
  }
}

template <class Format>
HWY_NOINLINE size_t add_vectors(const void* values, size_t first, size_t count, float* tile) {
  const DF df;
  const auto* const from = static_cast<const std::byte*>(values) + first * Format::kBytes;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto term = Format::load(from + i * Format::kBytes);
    hn::StoreU(hn::Add(hn::LoadU(df, tile + i), term), df, tile + i);
    prefetch_ahead<1>(from + i * Format::kBytes);
  }
  return i;
}

void add_values_tile(ValueKind kind, const void* values, size_t first, size_t count, float* tile) {
  const size_t done = with_format(
      kind, [&]<class Format>() { return add_vectors<Format>(values, first, count, tile); });
  element_reference().add_values(kind, values, first + done, count - done, tile + done);
}

void multiply_tile(const float* HWY_RESTRICT factors, size_t count, float* HWY_RESTRICT tile) {
  const DF df;
  for (size_t i = 0; i < count; i += kLanes) {
    hn::Store(hn::Mul(hn::Load(df, tile + i), hn::LoadU(df, factors + i)), df, tile + i);
  }
}

void limit_tile(float largest, size_t count, float* HWY_RESTRICT tile) {
  const DF df;
  const auto top = hn::Set(df, largest);
  for (size_t i = 0; i < count; i += kLanes) {
    const auto value = hn::Load(df, tile + i);
    const auto limited = hn::CopySign(top, value);
    hn::Store(hn::IfThenElse(hn::Gt(hn::Abs(value), top), limited, value), df, tile + i);
  }
}

void finish_tile(const Finish& finish, size_t count, float* HWY_RESTRICT tile) {
  if (!finish.divides()) return;
  const VectorFinish vector_finish(finish);
  for (size_t i = 0; i < count; i += kLanes) {
    VF run[1] = {hn::Load(DF(), tile + i)};
    vector_finish.apply(run);
    hn::Store(run[0], DF(), tile + i);
  }
}

HWY_INLINE VI lane_maxima(const float* values, size_t block) {
  const DI di;
  const auto* const from = reinterpret_cast<const int32_t*>(values);
  auto largest = hn::Zero(di);
  for (size_t i = 0; i < block; i += kLanes) {
    largest = hn::Max(largest, hn::And(hn::LoadU(di, from + i), hn::Set(di, 0x7fffffff)));
    prefetch_ahead<1>(from + i);
  }
  return largest;
}

// As many blocks as a vector has lanes together: see block_scales-inl.h. Returns how many those
// are.
size_t maxima_of_vectors(const float* tile, size_t blocks, int32_t* HWY_RESTRICT maxima) {
  size_t b = 0;
  for (; b + kLanes <= blocks; b += kLanes) {
    const auto magnitudes = [=](size_t k) { return lane_maxima(tile + (b + k) * kLanes, kLanes); };
    hn::StoreU(block_maxima(magnitudes), DI(), maxima + b);
  }
  return b;
}
size_t maxima_of_blocks(const float* tile, size_t block, size_t blocks,
                        int32_t* HWY_RESTRICT maxima) {
  const DI di;
  size_t b = 0;
  for (; b + kLanes <= blocks; b += kLanes) {
    alignas(64) int32_t partial[kLanes * kLanes];
    for (size_t k = 0; k < kLanes; ++k) {
      hn::Store(lane_maxima(tile + (b + k) * block, block), di, partial + k * kLanes);
    }
    hn::StoreU(block_maxima(StoredMaxima{partial}), di, maxima + b);
  }
  return b;
}

void tile_maxima(const float* tile, size_t block, size_t blocks, uint32_t* maxima) {
  auto* const to = reinterpret_cast<int32_t*>(maxima);
  size_t b = block == kLanes ? maxima_of_vectors(tile, blocks, to)
                             : maxima_of_blocks(tile, block, blocks, to);
  for (; b < blocks; ++b) {
    const auto largest = lane_maxima(tile + b * block, block);
    maxima[b] = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(DI(), largest)));
  }
}

uint32_t finite_maximum_of_tile(const float* values, size_t count, uint32_t overflow_bits) {
  const auto maxima = lane_maxima(values, count);
  const auto largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(DI(), maxima)));
  if (HWY_LIKELY(largest < overflow_bits)) return largest;
  return element_reference().finite_maximum(values, count, overflow_bits);
}

// The sum over the 128-bit parts of sixteen sums, lane by lane: of those that are 8 apart, then of
// those that are 4 apart.
using FourSums = hn::Vec<hn::CappedTag<float, 4>>;
inline constexpr size_t kMeanVectors = kMeanLanes / kLanes;

HWY_INLINE FourSums fold_sums(const VF (&sums)[kMeanVectors]) {
#if HWY_CAP_GE512
  const hn::Half<DF> dh;
  const hn::Half<decltype(dh)> dq;
  const auto eight = hn::Add(hn::LowerHalf(dh, sums[0]), hn::UpperHalf(dh, sums[0]));
  return hn::Add(hn::LowerHalf(dq, eight), hn::UpperHalf(dq, eight));
#elif HWY_CAP_GE256
  const hn::Half<DF> dh;
  const auto eight = hn::Add(sums[0], sums[1]);
  return hn::Add(hn::LowerHalf(dh, eight), hn::UpperHalf(dh, eight));
#else
  return hn::Add(hn::Add(sums[0], sums[2]), hn::Add(sums[1], sums[3]));
#endif
}

HWY_INLINE FourSums magnitude_sums(const float* HWY_RESTRICT from, size_t block) {
  const DF df;
  const auto factor = hn::Set(df, kMeanFactor);
  VF sums[kMeanVectors];
  for (auto& sum : sums) sum = hn::Zero(df);
  for (size_t i = 0; i < block; i += kMeanLanes) {
    for (size_t v = 0; v < kMeanVectors; ++v) {
      const auto magnitude = hn::Abs(hn::LoadU(df, from + i + v * kLanes));
      sums[v] = hn::Add(sums[v], hn::Mul(magnitude, factor));
    }
  }
  return fold_sums(sums);
}

// Four blocks together: a transposing tree adds what is 2 apart, then what is 1 apart.
void tile_magnitudes(const float* tile, size_t block, size_t blocks, float* HWY_RESTRICT sums) {
  const hn::CappedTag<float, 4> d4;
  const hn::Repartition<double, decltype(d4)> d2;
  size_t b = 0;
  for (; b + 4 <= blocks; b += 4) {
    const float* const from = tile + b * block;
    const auto s0 = magnitude_sums(from, block);
    const auto s1 = magnitude_sums(from + block, block);
    const auto s2 = magnitude_sums(from + 2 * block, block);
    const auto s3 = magnitude_sums(from + 3 * block, block);
    const auto s01 = hn::Add(hn::InterleaveLower(d4, s0, s1), hn::InterleaveUpper(d4, s0, s1));
    const auto s23 = hn::Add(hn::InterleaveLower(d4, s2, s3), hn::InterleaveUpper(d4, s2, s3));
    const auto even = hn::InterleaveLower(d2, hn::BitCast(d2, s01), hn::BitCast(d2, s23));
    const auto odd = hn::InterleaveUpper(d2, hn::BitCast(d2, s01), hn::BitCast(d2, s23));
    hn::StoreU(hn::Add(hn::BitCast(d4, even), hn::BitCast(d4, odd)), d4, sums + b);
  }
  element_reference().magnitudes(tile + b * block, block, blocks - b, sums + b);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_TILES_INL_H_
