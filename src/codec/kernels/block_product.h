// The product of a block with a matrix on either side: y = left x right, the block x seen as `rows`
// times `columns` numbers, row by row.
//
// Thread safety: plain values. Every number is one sum in the order of its terms, which begins with
// the first product; products and sums are rounded one by one.
#pragma once

#include <cstddef>

namespace tersum {

inline constexpr size_t kProductSideMax = 128;
inline constexpr size_t kProductBlockMax = 1024;  // rows * columns

struct BlockProduct {
  const float* left = nullptr;   // rows x rows
  const float* right = nullptr;  // columns x columns
  size_t rows = 1;
  size_t columns = 1;

  [[nodiscard]] size_t block() const { return rows * columns; }
};

// What is done to the values of a run of blocks beside it: (product of x * before) * after + terms.
// Null: nothing. With terms NaN becomes canonical, as these may hold any.
struct ProductEnds {
  const float* before = nullptr;
  const float* after = nullptr;
  const float* terms = nullptr;
};

}  // namespace tersum
