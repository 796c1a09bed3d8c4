// Square matrices of +kronecker: their norms and inverses, the same bits on every CPU.
//
// Thread safety: pure functions. Sums run in float64 in a fixed order, one rounding per operation,
// so that what ranks compute from equal matrices is equal.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tersum {

// side * side numbers, row by row.
struct SquareMatrix {
  size_t side = 0;
  std::vector<float> values;

  [[nodiscard]] float at(size_t row, size_t column) const { return values[row * side + column]; }
};

// The 1-norm: the largest of the columns' sums of magnitudes.
double column_norm(const SquareMatrix& matrix);

// By Gauss-Jordan elimination with the largest pivot of each column, rounded to float32 at the end.
// Empty for a matrix that has none.
SquareMatrix inverse(const SquareMatrix& matrix);

// The 1-norm of matrix * inverse - 1: what the inverse's rounding leaves.
double inverse_residual(const SquareMatrix& matrix, const SquareMatrix& inverse);

SquareMatrix transposed(const SquareMatrix& matrix);

}  // namespace tersum
