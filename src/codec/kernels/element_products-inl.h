// Blocks of a tile times matrices: kronecker_transform.h.
//
// Lanes are neighbours of a row, so that each number's sum has the reference's order.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_PRODUCTS_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_PRODUCTS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_PRODUCTS_INL_H_
#endif

#include "codec/kernels/block_product.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/vector_formats-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// What is done to a number of the second product before it is stored.
struct PlainStore {
  HWY_INLINE VF apply(VF value, size_t) const { return value; }
};
struct EndingStore {
  const ProductEnds& ends;
  HWY_INLINE VF apply(VF value, size_t at) const {
    if (ends.after != nullptr) value = hn::Mul(value, hn::LoadU(DF(), ends.after + at));
    if (ends.terms == nullptr) return value;
    return canonical(hn::Add(value, hn::LoadU(DF(), ends.terms + at)));
  }
};

// Rows first..first+kRows-1 of left (rows x inner) times right (inner x columns).
template <size_t kRows, class End>
HWY_INLINE void product_rows(const float* left, size_t inner, const float* right, size_t columns,
                             size_t first, const End& end, float* out) {
  const DF df;
  left += first * inner;
  for (size_t j = 0; j < columns; j += kLanes) {
    VF sums[kRows];
    const auto begin = hn::LoadU(df, right + j);
    for (size_t k = 0; k < kRows; ++k) sums[k] = hn::Mul(hn::Set(df, left[k * inner]), begin);
    for (size_t s = 1; s < inner; ++s) {
      const auto row = hn::LoadU(df, right + s * columns + j);
      for (size_t k = 0; k < kRows; ++k) {
        sums[k] = hn::Add(sums[k], hn::Mul(hn::Set(df, left[k * inner + s]), row));
      }
    }
    for (size_t k = 0; k < kRows; ++k) {
      const size_t at = (first + k) * columns + j;
      hn::StoreU(end.apply(sums[k], at), df, out + at);
    }
  }
}

// Eight rows' sums stay in registers on every instruction set, and do not wait for each other.
template <class End>
HWY_INLINE void product(const float* left, size_t rows, size_t inner, const float* right,
                        size_t columns, const End& end, float* out) {
  size_t i = 0;
  for (; i + 8 <= rows; i += 8) product_rows<8>(left, inner, right, columns, i, end, out);
  for (; i + 2 <= rows; i += 2) product_rows<2>(left, inner, right, columns, i, end, out);
  if (i < rows) product_rows<1>(left, inner, right, columns, i, end, out);
}

void multiply_blocks_tile(const BlockProduct& matrices, const ProductEnds& ends, const float* from,
                          size_t count, float* to) {
  const auto [left, right, rows, columns] = matrices;
  if (columns % kLanes != 0) {
    return element_reference().multiply_blocks(matrices, ends, from, count, to);
  }
  alignas(64) float begun[kProductBlockMax];
  alignas(64) float half[kTileMemory];
  const size_t block = matrices.block();
  for (size_t begin = 0; begin < count; begin += block) {
    const float* x = from + begin;
    if (ends.before != nullptr) {
      for (size_t i = 0; i < block; i += kLanes) {
        const auto factors = hn::LoadU(DF(), ends.before + begin + i);
        hn::Store(hn::Mul(hn::LoadU(DF(), x + i), factors), DF(), begun + i);
      }
      x = begun;
    }
    product(left, rows, rows, x, columns, PlainStore(), half + begin);
  }
  // The rows of all blocks at once: a block may have only one.
  product(half, count / columns, columns, right, columns, EndingStore{ends}, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_PRODUCTS_INL_H_
