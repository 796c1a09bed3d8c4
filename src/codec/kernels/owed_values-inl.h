// What +feedback keeps of values: sums with what is owed, and what their coding lost.
#if defined(TERSUM_CODEC_KERNELS_OWED_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_OWED_VALUES_INL_H_
#undef TERSUM_CODEC_KERNELS_OWED_VALUES_INL_H_
#else
#define TERSUM_CODEC_KERNELS_OWED_VALUES_INL_H_
#endif

#include <limits>

#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/element_tiles-inl.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/vector_formats-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Zero for what is no number.
HWY_INLINE VF finite_or_zero(VF value) {
  const DF df;
  const auto largest = hn::Set(df, std::numeric_limits<float>::max());
  return hn::IfThenElseZero(hn::Le(hn::Abs(value), largest), value);
}

template <class Format>
HWY_NOINLINE size_t add_owed_vectors(const std::byte* values, size_t count, float largest,
                                     float* HWY_RESTRICT owed, float* HWY_RESTRICT sums) {
  const DF df;
  const auto most = hn::Set(df, largest);
  const auto least = hn::Neg(most);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto value = Format::load(values + i * Format::kBytes);
    const auto sum = hn::Add(value, hn::LoadU(df, owed + i));
    const auto is_number = hn::Le(hn::Abs(value), most);
    const auto limited = hn::Min(hn::Max(sum, least), most);
    const auto sent = hn::IfThenElse(is_number, limited, canonical(value));
    hn::StoreU(sent, df, sums + i);
    hn::StoreU(finite_or_zero(hn::Sub(sum, sent)), df, owed + i);
    prefetch_ahead<1>(values + i * Format::kBytes);
    prefetch_ahead<1>(owed + i);
  }
  return i;
}

void add_owed_values(ValueKind kind, const void* values, size_t count, float largest, float* owed,
                     float* sums) {
  const auto* const from = static_cast<const std::byte*>(values);
  const size_t done = with_format(kind, [=]<class Format>() {
    return add_owed_vectors<Format>(from, count, largest, owed, sums);
  });
  element_reference().add_owed(kind, from + done * value_bytes(kind), count - done, largest,
                               owed + done, sums + done);
}

template <class Format>
HWY_NOINLINE size_t keep_lost_vectors(const float* HWY_RESTRICT sums, const std::byte* back,
                                      size_t count, float factor, float* HWY_RESTRICT owed) {
  const DF df;
  const auto factors = hn::Set(df, factor);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto coded = Format::load(back + i * Format::kBytes);
    const auto lost = hn::Mul(hn::Sub(hn::LoadU(df, sums + i), coded), factors);
    hn::StoreU(finite_or_zero(hn::Add(hn::LoadU(df, owed + i), lost)), df, owed + i);
  }
  return i;
}

void keep_lost_values(ValueKind kind, const float* sums, const void* back, size_t count,
                      float factor, float* owed) {
  const auto* const from = static_cast<const std::byte*>(back);
  const size_t done = with_format(kind, [=]<class Format>() {
    return keep_lost_vectors<Format>(sums, from, count, factor, owed);
  });
  element_reference().keep_lost(kind, sums + done, from + done * value_bytes(kind), count - done,
                                factor, owed + done);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_OWED_VALUES_INL_H_
