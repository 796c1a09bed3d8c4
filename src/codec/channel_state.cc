#include "codec/channel_state.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bytes.h"
#include "base/check.h"
#include "base/mix_bits.h"
#include "codec/kernels/dense_elements.h"
#include "codec/observed_rows.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

uint64_t mix(uint64_t seed, uint64_t word) { return mix_bits((seed ^ word) + 0x9e3779b97f4a7c15U); }

// Element by element, so that the compiler may take several channels at once: each channel's sum
// has the order of the rows whatever it does.
template <class Element>
void add_squares(const std::byte* row, size_t channels, double* sums) {
  for (size_t c = 0; c < channels; ++c) {
    const double value = Element::load(row, c);
    sums[c] += value * value;
  }
}

template <class Element>
void load_row(const std::byte* row, size_t channels, double* values) {
  for (size_t c = 0; c < channels; ++c) values[c] = Element::load(row, c);
}

void add_row(DataType type, const std::byte* row, size_t channels, double* sums) {
  switch (value_kind(type)) {
    case ValueKind::kFloat32:
      return add_squares<PlainElement<float>>(row, channels, sums);
    case ValueKind::kBFloat16:
      return add_squares<BFloat16Element>(row, channels, sums);
    case ValueKind::kFloat16:
      return add_squares<Float16Element>(row, channels, sums);
  }
}

void load_row(DataType type, const std::byte* row, size_t channels, double* values) {
  switch (value_kind(type)) {
    case ValueKind::kFloat32:
      return load_row<PlainElement<float>>(row, channels, values);
    case ValueKind::kBFloat16:
      return load_row<BFloat16Element>(row, channels, values);
    case ValueKind::kFloat16:
      return load_row<Float16Element>(row, channels, values);
  }
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

ChannelState::ChannelState(size_t channels) : mean_squares_(channels), observed_(channels) {
  TERSUM_CHECK(channels >= 2 && channels <= kChannelsMax);
  derive_digest();
}

void ChannelState::observe(const void* sums, size_t count, DataType type, uint32_t every,
                           const OutlierPlaces& outliers) {
  TERSUM_CHECK(count % channels() == 0 && every >= 1);
  const bool looked = looks(every);
  ++calls_;
  const size_t rows = count / channels();
  const size_t row_bytes = channels() * element_bytes(type);
  const auto row_of = [&](size_t row) {
    return static_cast<const std::byte*>(sums) + row * row_bytes;
  };
  if (looked && learn(row_of, rows, row_step(rows), type, outliers)) derive_factors();
  derive_digest();
}

void ChannelState::observe(const ObservedRows& rows, const OutlierPlaces& outliers) {
  ++calls_;
  const auto row_of = [&](size_t row) { return reinterpret_cast<const std::byte*>(rows.row(row)); };
  if (learn(row_of, rows.rows() * rows.step(), rows.step(), DataType::kFloat32, outliers)) {
    derive_factors();
  }
  derive_digest();
}

// False where there is nothing to learn from.
template <class RowOf>
bool ChannelState::learn(const RowOf& row_of, size_t rows, size_t step, DataType type,
                         const OutlierPlaces& outliers) {
  if (rows == 0) return false;
  std::fill(observed_.begin(), observed_.end(), 0.0);
  if (!outliers.is_empty()) dense_row_.resize(channels());
  uint64_t seen = 0;
  for (size_t row = 0; row < rows; row += step, ++seen) {
    const std::byte* const values = row_of(row);
    if (outliers.is_empty()) {
      add_row(type, values, channels(), observed_.data());
      continue;
    }
    load_row(type, values, channels(), dense_row_.data());
    // A value that is not finite becomes NaN by this.
    outliers.for_each(row * channels(), (row + 1) * channels(),
                      [&](size_t channel) { dense_row_[channel] *= 0; });
    for (size_t c = 0; c < channels(); ++c) observed_[c] += dense_row_[c] * dense_row_[c];
  }
  if (!all_finite(observed_)) return false;
  const auto before = static_cast<double>(std::min(rows_, kRowsRemembered));
  const double total = before + static_cast<double>(seen);
  for (size_t c = 0; c < channels(); ++c) {
    mean_squares_[c] = (mean_squares_[c] * before + observed_[c]) / total;
  }
  rows_ += seen;
  return true;
}

void ChannelState::derive_digest() {
  digest_ = mix(mix(mix(0, channels()), calls_), rows_);
  for (const double v : mean_squares_) digest_ = mix(digest_, std::bit_cast<uint64_t>(v));
}

void ChannelState::derive_factors() {
  const double mean = mean_of(mean_squares_);
  ready_ = rows_ >= kRowsMin && mean > 0;
  if (!ready_) return;
  const size_t held = channels() + kFactorTail;
  forward_.resize(held);
  undo_.resize(held);
  for (size_t c = 0; c < channels(); ++c) {
    const double root = std::sqrt(mean_squares_[c] / mean + kFloor);
    undo_[c] = bf16_to_float(float_to_bf16(static_cast<float>(root)));
  }
  const float least =
      *std::min_element(undo_.begin(), undo_.begin() + static_cast<long>(channels()));
  factors_.undo_max = 1;
  for (size_t c = 0; c < channels(); ++c) {
    forward_[c] = std::sqrt(least / undo_[c]);
    undo_[c] = std::sqrt(undo_[c] / least);
    factors_.undo_max = std::max(factors_.undo_max, double{undo_[c]});
  }
  for (size_t i = channels(); i < held; ++i) {
    forward_[i] = forward_[i - channels()];
    undo_[i] = undo_[i - channels()];
  }
  factors_.forward = forward_.data();
  factors_.undo = undo_.data();
  factors_.channels = channels();
}

void ChannelState::save(std::span<std::byte> to) const {
  TERSUM_CHECK(to.size() == saved_bytes());
  store_le(to.data(), calls_);
  store_le(to.data() + 8, rows_);
  for (size_t c = 0; c < channels(); ++c) store_le(to.data() + 16 + 8 * c, mean_squares_[c]);
}

bool ChannelState::load(std::span<const std::byte> from) {
  if (from.size() != saved_bytes()) return false;
  std::vector<double> loaded(channels());
  for (size_t c = 0; c < channels(); ++c) {
    loaded[c] = load_le<double>(from.data() + 16 + 8 * c);
    if (!(loaded[c] >= 0) || !std::isfinite(loaded[c])) return false;
  }
  calls_ = load_le<uint64_t>(from.data());
  rows_ = load_le<uint64_t>(from.data() + 8);
  mean_squares_ = std::move(loaded);
  derive_factors();
  derive_digest();
  return true;
}

}  // namespace tersum
