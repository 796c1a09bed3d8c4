// Integer codes added up under shifts (shift_sum.h).
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_SHIFTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_SHIFTS_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_SHIFTS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_SHIFTS_INL_H_
#endif

#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

void add_shifted_codes(const ElementFormat& format, const uint8_t* HWY_RESTRICT codes, size_t count,
                       const int32_t* HWY_RESTRICT shifts, int32_t* HWY_RESTRICT sums) {
  const DI di;
  const hn::Rebind<uint8_t, DI> db;
  const auto up = static_cast<int>(32 - format.bits);
  for (size_t at = 0; at < count; at += format.block) {
    const int32_t shift = *shifts++;
    if (shift < 0) {
      element_reference().add_shifted(format, codes + at, format.block, &shift, sums + at);
      continue;
    }
    // To the top of the lane, and back by less: the sign is extended on the way.
    for (size_t i = at; i < at + format.block; i += kLanes) {
      const auto code = hn::PromoteTo(di, hn::LoadU(db, codes + i));
      const auto term = hn::ShiftRightSame(hn::ShiftLeftSame(code, up), up - shift);
      hn::Store(hn::Add(hn::Load(di, sums + i), term), di, sums + i);
    }
  }
}

void scale_shifted_sums(const int32_t* HWY_RESTRICT sums, size_t count, size_t block,
                        const float* HWY_RESTRICT units, float* HWY_RESTRICT tile) {
  const DF df;
  for (size_t at = 0; at < count; at += block) {
    const auto unit = hn::Set(df, *units++);
    for (size_t i = at; i < at + block; i += kLanes) {
      const auto sum = hn::ConvertTo(df, hn::Load(DI(), sums + i));
      hn::Store(hn::Mul(sum, unit), df, tile + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_SHIFTS_INL_H_
