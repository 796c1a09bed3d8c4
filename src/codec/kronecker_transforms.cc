#include "codec/kronecker_transforms.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "codec/codec.h"
#include "codec/digest_name.h"
#include "codec/known_numbers.h"
#include "codec/kronecker_file.h"
#include "codec/kronecker_matrix.h"

namespace tersum {
namespace {

constexpr size_t kBlockLeast = 16;

// Everything that a transform points to.
struct Transform {
  SquareMatrix p1_turned, p2;  // scaled
  SquareMatrix q1_turned, q2;  // their inverses
  std::vector<float> diagonal, undo_diagonal;
  KroneckerTransform view;
};

std::string text_of(double number) {
  std::array<char, 32> text{};
  const int size = std::snprintf(text.data(), text.size(), "%.6g", number);
  return {text.data(), static_cast<size_t>(size)};
}

std::string shape_of(size_t side) { return std::to_string(side) + " x " + std::to_string(side); }

// Divided by the power of two that brings the norm to 1/2 at most: exact but for denormals.
void scale_matrix(SquareMatrix& matrix) {
  int exponent = 0;
  const double norm = column_norm(matrix);
  // norm is in [2^(exponent - 1), 2^exponent).
  const double mantissa = std::frexp(norm, &exponent);
  const int shift = mantissa == 0.5 ? exponent : exponent + 1;
  for (float& value : matrix.values) {
    value = static_cast<float>(std::ldexp(double{value}, -shift));
  }
}

Status check_matrix(std::string_view what, std::span<const float> values, SquareMatrix& matrix) {
  const std::string name(what);
  const auto side = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(values.size()))));
  if (side * side != values.size() || !std::has_single_bit(side) || side > kProductSideMax) {
    return invalid_argument(name + " has " + std::to_string(values.size()) +
                            " numbers, which are no square matrix with 1, 2, 4, … 128 rows");
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return invalid_argument(name + ": row " + std::to_string(i / side) + ", column " +
                            std::to_string(i % side) + " is not finite");
  }
  matrix = {side, {values.begin(), values.end()}};
  // One zero, so that equal matrices have equal digests.
  for (float& value : matrix.values) value += 0.0F;
  return {};
}

// Scales `matrix` and finds its inverse.
Status invert(std::string_view what, SquareMatrix& matrix, SquareMatrix& found) {
  const std::string name = std::string(what) + " (" + shape_of(matrix.side) + ")";
  scale_matrix(matrix);
  found = inverse(matrix);
  if (found.side == 0) return invalid_argument(name + " is singular: it has no inverse");
  const double condition = column_norm(matrix) * column_norm(found);
  if (!(condition <= kConditionMax)) {
    return invalid_argument(name + " is nearly singular: its condition number (1-norm) is " +
                            text_of(condition) + ", above " + text_of(kConditionMax));
  }
  return {};
}

Status check_diagonal(std::span<const float> diagonal) {
  if (diagonal.size() > kDiagonalMax) {
    return invalid_argument("the diagonal has " + std::to_string(diagonal.size()) +
                            " channels, above " + std::to_string(kDiagonalMax));
  }
  double least = std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t c = 0; c < diagonal.size(); ++c) {
    const double size = std::abs(double{diagonal[c]});
    if (!std::isfinite(size) || size == 0) {
      return invalid_argument("the factor of channel " + std::to_string(c) +
                              " is zero or not finite");
    }
    least = std::min(least, size);
    largest = std::max(largest, size);
  }
  if (!diagonal.empty() && largest > kDiagonalRatioMax * least) {
    return invalid_argument("the channels' factors are " + text_of(largest / least) +
                            " times apart, more than " + text_of(kDiagonalRatioMax));
  }
  return {};
}

// Factors of at most 1, so that nothing overflows, and a tile's beyond a period.
void complete_diagonal(std::span<const float> given, Transform& made) {
  if (given.empty()) return;
  float largest = 0;
  for (const float factor : given) largest = std::max(largest, std::abs(factor));
  int exponent = 0;
  // largest is in (2^(exponent - 1), 2^exponent], or 2^(exponent - 1) itself.
  const float mantissa = std::frexp(largest, &exponent);
  const int shift = mantissa == 0.5F ? exponent - 1 : exponent;
  const size_t channels = given.size();
  const size_t reach = channels + kFactorTail;
  made.diagonal.resize(reach);
  made.undo_diagonal.resize(reach);
  float undo_max = 0;
  for (size_t i = 0; i < reach; ++i) {
    made.diagonal[i] = static_cast<float>(std::ldexp(double{given[i % channels]}, -shift));
    made.undo_diagonal[i] = 1.0F / made.diagonal[i];
    undo_max = std::max(undo_max, std::abs(made.undo_diagonal[i]));
  }
  made.view.diagonal = made.diagonal.data();
  made.view.undo_diagonal = made.undo_diagonal.data();
  made.view.channels = channels;
  made.view.undo_max = undo_max;
}

std::string digest_of(const SquareMatrix& p1, const SquareMatrix& p2,
                      std::span<const float> diagonal) {
  std::vector<std::byte> bytes;
  bytes.reserve(12 + 4 * (p1.values.size() + p2.values.size() + diagonal.size()));
  const auto append = [&](auto value) {
    bytes.resize(bytes.size() + 4);
    store_le(bytes.data() + bytes.size() - 4, value);
  };
  for (const size_t size : {p1.side, p2.side, diagonal.size()}) {
    append(static_cast<uint32_t>(size));
  }
  for (const float value : p1.values) append(value);
  for (const float value : p2.values) append(value);
  for (const float value : diagonal) append(value);
  return digest_name(bytes);
}

Status make_transform(std::span<const float> given1, std::span<const float> given2,
                      std::span<const float> diagonal, Transform& made) {
  SquareMatrix p1;
  TERSUM_RETURN_IF_ERROR(check_matrix("P1", given1, p1));
  TERSUM_RETURN_IF_ERROR(check_matrix("P2", given2, made.p2));
  const size_t block = p1.side * made.p2.side;
  const std::string shape = shape_of(p1.side) + " and " + shape_of(made.p2.side);
  if (block < kBlockLeast || block > kProductBlockMax) {
    return invalid_argument("P1 and P2 are " + shape + ", for blocks of " + std::to_string(block) +
                            " values; blocks have 16 to 1024");
  }
  TERSUM_RETURN_IF_ERROR(check_diagonal(diagonal));
  KroneckerTransform& view = made.view;
  view.name = digest_of(p1, made.p2, diagonal);
  view.other_blocks = "its matrices are " + shape + ", for blocks of " + std::to_string(block);
  SquareMatrix q1;
  TERSUM_RETURN_IF_ERROR(invert("P1", p1, q1));
  TERSUM_RETURN_IF_ERROR(invert("P2", made.p2, made.q2));
  view.there_norm = column_norm(p1) * column_norm(made.p2);
  view.back_norm = column_norm(q1) * column_norm(made.q2);
  const double left = inverse_residual(p1, q1);
  const double right = inverse_residual(made.p2, made.q2);
  view.residual = left + right + left * right;
  made.p1_turned = transposed(p1);
  made.q1_turned = transposed(q1);
  view.there = {made.p1_turned.values.data(), made.p2.values.data(), p1.side, made.p2.side};
  view.back = {made.q1_turned.values.data(), made.q2.values.data(), p1.side, made.p2.side};
  complete_diagonal(diagonal, made);
  return {};
}

KnownNumbers<Transform>& known_transforms() {
  static auto* const transforms = new KnownNumbers<Transform>("transforms");
  return *transforms;
}

}  // namespace

Result<uint16_t> register_kronecker_transform(std::span<const float> p1, std::span<const float> p2,
                                              std::span<const float> diagonal) {
  auto made = std::make_unique<Transform>();
  TERSUM_RETURN_IF_ERROR(make_transform(p1, p2, diagonal, *made));
  const std::string& digest = made->view.name;
  return known_transforms().add(digest, std::move(made));
}

Result<uint16_t> find_kronecker_transform(std::string_view name) {
  if (const uint16_t number = known_transforms().find(name); number != 0) return number;
  const Result<KroneckerNumbers> numbers = read_kronecker_file(name);
  if (!numbers.ok()) return numbers.status();
  const auto& [p1, p2, diagonal] = numbers.value();
  Result<uint16_t> number = register_kronecker_transform(p1, p2, diagonal);
  if (!number.ok()) {
    return bad_kronecker_file(name, "is refused: " + std::string(number.status().message()));
  }
  known_transforms().add_file(name, number.value());
  return number;
}

const KroneckerTransform& kronecker_transform(uint16_t number) {
  return known_transforms().at(number).view;
}

}  // namespace tersum
