#include "codec/kronecker_matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tersum {
namespace {

// Infinity beyond float32, where a cast has no defined value.
float to_float(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (std::abs(value) <= kMost) return static_cast<float>(value);
  return static_cast<float>(std::copysign(std::numeric_limits<double>::infinity(), value));
}

// The rows of [matrix | 1].
class Elimination {
 public:
  explicit Elimination(const SquareMatrix& matrix)
      : side_(matrix.side), width_(2 * matrix.side), rows_(side_ * width_) {
    for (size_t r = 0; r < side_; ++r) {
      for (size_t c = 0; c < side_; ++c) row(r)[c] = matrix.at(r, c);
      row(r)[side_ + r] = 1;
    }
  }

  // False if the column has no pivot.
  bool eliminate(size_t column) {
    size_t pivot = column;
    for (size_t r = column + 1; r < side_; ++r) {
      if (std::abs(row(r)[column]) > std::abs(row(pivot)[column])) pivot = r;
    }
    const double divisor = row(pivot)[column];
    if (divisor == 0 || !std::isfinite(divisor)) return false;
    if (pivot != column) std::swap_ranges(row(pivot), row(pivot) + width_, row(column));
    double* const top = row(column);
    for (size_t c = 0; c < width_; ++c) top[c] /= divisor;
    for (size_t r = 0; r < side_; ++r) {
      if (r == column) continue;
      double* const other = row(r);
      const double factor = other[column];
      for (size_t c = 0; c < width_; ++c) other[c] -= factor * top[c];
    }
    return true;
  }

  [[nodiscard]] SquareMatrix result() {
    SquareMatrix inverse{side_, {}};
    inverse.values.reserve(side_ * side_);
    for (size_t r = 0; r < side_; ++r) {
      for (size_t c = 0; c < side_; ++c) {
        inverse.values.push_back(to_float(row(r)[side_ + c]));
      }
    }
    return inverse;
  }

 private:
  double* row(size_t index) { return rows_.data() + index * width_; }

  size_t side_;
  size_t width_;
  std::vector<double> rows_;
};

}  // namespace

double column_norm(const SquareMatrix& matrix) {
  double largest = 0;
  for (size_t c = 0; c < matrix.side; ++c) {
    double sum = 0;
    for (size_t r = 0; r < matrix.side; ++r) sum += std::abs(double{matrix.at(r, c)});
    largest = std::max(largest, sum);
  }
  return largest;
}

SquareMatrix inverse(const SquareMatrix& matrix) {
  Elimination elimination(matrix);
  for (size_t column = 0; column < matrix.side; ++column) {
    if (!elimination.eliminate(column)) return {};
  }
  return elimination.result();
}

double inverse_residual(const SquareMatrix& matrix, const SquareMatrix& inverse) {
  double largest = 0;
  for (size_t c = 0; c < matrix.side; ++c) {
    double sum = 0;
    for (size_t r = 0; r < matrix.side; ++r) {
      double product = r == c ? -1 : 0;
      for (size_t k = 0; k < matrix.side; ++k) {
        product += double{matrix.at(r, k)} * double{inverse.at(k, c)};
      }
      sum += std::abs(product);
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

SquareMatrix transposed(const SquareMatrix& matrix) {
  SquareMatrix turned{matrix.side, {}};
  turned.values.reserve(matrix.values.size());
  for (size_t c = 0; c < matrix.side; ++c) {
    for (size_t r = 0; r < matrix.side; ++r) turned.values.push_back(matrix.at(r, c));
  }
  return turned;
}

}  // namespace tersum
