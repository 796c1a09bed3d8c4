// ChannelState: what +flatten knows of the channels at one call site, learned from the sums
// themselves.
//
// Every rank holds the same sums, bit for bit, so every rank that observes the same calls holds the
// same state, with no exchange. Channel c of an array is every value whose index modulo
// `channels()` is c: the last dimension.
//
//   v_c   running mean square of channel c over the rows seen, the last kRowsRemembered about
//   D_c   sqrt(v_c / mean(v) + kFloor), rounded to bfloat16; forward factor sqrt(min D / D_c)
//
// Thread safety: none. Invariants: sums run in float64, value by value, row by row, and roots are
// correctly rounded, so the factors' bits depend on the observed bits alone, not on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "codec/outlier_places.h"
#include "tersum/data_type.h"

namespace tersum {

class ObservedRows;

class ChannelState {
 public:
  // Below that many rows the diagonal costs more than it gains: 1 row makes the error 1.39 times
  // that of Hadamard alone, 16 rows 1.015 times.
  static constexpr uint64_t kRowsMin = 16;
  // The memory of the running mean, in rows. A call of 64 rows weighs a quarter.
  static constexpr uint64_t kRowsRemembered = 192;
  // Rows looked at in one call, evenly spaced: a bound on what observing costs.
  static constexpr size_t kRowsObserved = 256;
  // Of the mean square. Keeps the factor of a channel that was silent so far finite, and small
  // enough that the channel may wake.
  static constexpr double kFloor = 0.01;
  static constexpr size_t kChannelsMax = size_t{1} << 20;
  // undo <= ((kChannelsMax + kFloor) / kFloor)^(1/4), and what rounding D adds.
  static constexpr double kUndoMax = 102;

  // 2 to kChannelsMax.
  explicit ChannelState(size_t channels);
  ChannelState(const ChannelState&) = delete;  // factors() points into it
  ChannelState& operator=(const ChannelState&) = delete;
  ChannelState(ChannelState&&) = default;
  ChannelState& operator=(ChannelState&&) = default;

  [[nodiscard]] size_t channels() const { return mean_squares_.size(); }
  [[nodiscard]] uint64_t rows() const { return rows_; }

  // Between rows that are looked at.
  [[nodiscard]] static size_t row_step(size_t rows) {
    return (rows + kRowsObserved - 1) / kRowsObserved;
  }
  // Whether the next call's result will be looked at.
  [[nodiscard]] bool looks(uint32_t every) const { return rows_ < kRowsMin || calls_ % every == 0; }
  // A call's result: `count` values, a multiple of channels(). Every `every`-th call is looked at,
  // and all of them until kRowsMin rows were. Values that are not finite leave the state as it is.
  // `outliers`: the finite values there count as 0, since the diagonal is for what is left of them.
  void observe(const void* sums, size_t count, DataType type, uint32_t every,
               const OutlierPlaces& outliers = {});
  // The same of a result that has been read already, where looks() said so.
  void observe(const ObservedRows& rows, const OutlierPlaces& outliers);

  // Null while fewer than kRowsMin rows were seen, or all of them were zero. Valid until the next
  // observe() or reset().
  [[nodiscard]] const ChannelFactors* factors() const { return ready_ ? &factors_ : nullptr; }
  // 64 bits of everything that makes the next calls what they are. Equal states have equal digests.
  [[nodiscard]] uint64_t digest() const { return digest_; }

  // calls, rows, v_0, v_1, …, each 8 bytes, little-endian.
  [[nodiscard]] size_t saved_bytes() const { return 16 + 8 * channels(); }
  void save(std::span<std::byte> to) const;
  // False, and the state untouched, if `from` is nothing that save() writes for these channels.
  [[nodiscard]] bool load(std::span<const std::byte> from);

 private:
  // `row_of(r)`: where row r of the array is.
  template <class RowOf>
  bool learn(const RowOf& row_of, size_t rows, size_t step, DataType type,
             const OutlierPlaces& outliers);
  void derive_digest();
  void derive_factors();

  uint64_t calls_ = 0;
  uint64_t rows_ = 0;
  std::vector<double> mean_squares_;
  std::vector<double> observed_;   // scratch of observe()
  std::vector<double> dense_row_;  // and, of calls with outliers, a row without them
  bool ready_ = false;
  std::vector<float> forward_;
  std::vector<float> undo_;
  ChannelFactors factors_;
  uint64_t digest_ = 0;
};

}  // namespace tersum
