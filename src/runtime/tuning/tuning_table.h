// TuningTable: how long all_reduce took in this group, by codec, plan and size, and what follows.
//
// Thread safety: immutable once shared; pure functions. Invariant: equal on all ranks of a group
// (the tuner sees to it), so what it chooses is, too.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tuning/time_model.h"
#include "runtime/tuning/tuning_codecs.h"

namespace tersum {

struct TuningOption {
  TuningWay way;
  double seconds = 0;          // predicted
  bool is_worked_out = false;  // from the times of other codecs
  double least_s = 0;          // what the exact path is said to take of as many bytes
};

class TuningTable {
 public:
  TuningTable() = default;
  explicit TuningTable(std::vector<TuningPoint> points);

  // What the time model (time_model.h) makes of the points.
  [[nodiscard]] std::optional<double> seconds(const TuningWay& way, size_t bytes) const;

  // What the exact path takes of an array of `wire_bytes`, by its fastest plan; 0 where no plan was
  // measured at two sizes, which alone tell latency and bytes apart.
  [[nodiscard]] double exact_seconds(size_t wire_bytes) const;

  // Every way that was measured for one of `codecs`, the fastest first, except that exact comes
  // before what is not clearly faster, since noise must not cost accuracy, nor would be if its
  // bytes were all that it needs (least_s), unless its lead is plain: where latency is all, noise
  // makes none. Other plans come before
  // a ring that is not clearly faster, whose ranks wait for each other most often, and before what
  // only the cost model brought in that is not faster by more than 3 %. `exact_bytes` is
  // the array's size as it is, `float_bytes` as float32, which is what a lossy codec's cost
  // follows.
  [[nodiscard]] std::vector<TuningOption> rank_ways(
      size_t exact_bytes, size_t float_bytes, const std::vector<std::string_view>& codecs) const;

  // The same order, of ways with predicted times, however those were come by: what is worked out
  // has to be faster by another 5 %.
  [[nodiscard]] static std::vector<TuningOption> rank(std::vector<TuningOption> options,
                                                      size_t exact_bytes);

  [[nodiscard]] const std::vector<TuningPoint>& points() const { return points_; }
  // Of the group, not measured, so that it is not written: TuningRequest::cached_bytes.
  void set_cached_bytes(size_t bytes) { cached_bytes_ = bytes; }
  [[nodiscard]] size_t cached_bytes() const { return cached_bytes_; }
  [[nodiscard]] bool empty() const { return points_.empty(); }

  // One line per point, then one that says so; `key` says what it was measured for. parse gives an
  // empty table when the text was written for another key or is damaged.
  [[nodiscard]] std::string to_text(std::string_view key) const;
  static TuningTable parse(std::string_view text, std::string_view key);

 private:
  std::vector<TuningPoint> points_;  // by way, then by size
  size_t cached_bytes_ = 0;
};

}  // namespace tersum
