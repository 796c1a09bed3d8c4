// ErrorSamples: what codecs would have done to recent sums, measured on samples of them.
//
// Now and then a call that leaves its codec open and names an error sends, before the sum itself, a
// few of its values exactly and with them how far each codec of a ladder moves them on this rank.
// Summed over the ranks that gives the sample's exact sum and the error that all contributions
// bring to it; coding that sum adds what the plan does to results. All ranks get the same bits, so
// all come to the same codec.
//
// Error here is relative and of a whole sum: ||result - exact|| / ||exact||, each a root of a sum
// of squares. It says what is usual, where block_error_bound says what is possible.
//
// Thread safety: none of its own. Invariant: ranks that make the same calls hold the same state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"
#include "runtime/start_call.h"

namespace tersum {

struct SampledCodec {
  std::string_view codec;  // of the ladder, or exact; for ever
  double rel_error = 0;    // the largest of the recent samples

  bool operator==(const SampledCodec&) const = default;
};

class ErrorSamples {
 public:
  static constexpr size_t kRuns = 8;
  static constexpr size_t kRunValues = 512;  // whole blocks of every codec of the ladder
  static constexpr size_t kSitesKept = 64;
  static constexpr uint32_t kEvery = 16;
  // Measuring takes half a millisecond, too much for every 16th call of arrays below this.
  static constexpr size_t kLargeValues = 65'536;
  static constexpr uint32_t kEverySmall = 256;
  static constexpr size_t kRecent = 4;

  // By wire bits, falling; of equal bits the slower one first.
  static const std::vector<std::string_view>& ladder();

  // Counts a call; true where it is to be measured: the first two of a site (named by the options;
  // one for each length, type, operation and collective) and every kEvery-th or kEverySmall-th.
  bool count_call(const CallArguments& arguments, const CallOptions& options);

  // What this rank adds to the group's message for the call counted last: the sample, then the
  // squared error of each codec of the ladder on it. `count` values are the whole input.
  [[nodiscard]] std::vector<double> measure(const CallArguments& arguments,
                                            const CallOptions& options, size_t count) const;

  // From the sum of the ranks' messages; `terms` are those of the plan that the call would take. A
  // sample with NaN or Inf teaches nothing.
  void learn(const CallArguments& arguments, const CallOptions& options,
             const std::vector<double>& summed, const PlanErrorTerms& terms, int ranks);

  // The codec of the fewest bits whose error stayed within `rel_error` in all recent samples of the
  // site; "exact" where none did; nothing where none was taken.
  [[nodiscard]] std::optional<SampledCodec> cheapest(const CallArguments& arguments,
                                                     const CallOptions& options,
                                                     double rel_error) const;

 private:
  struct Site {
    Collective collective;
    DataType type;
    ReduceOp op;
    size_t count;
    std::string name;
    uint64_t calls = 0;
    uint64_t samples = 0;
    // Of the last samples, by codec of the ladder.
    std::array<std::vector<double>, kRecent> errors;
  };
  [[nodiscard]] const Site* find(const CallArguments& arguments, const CallOptions& options) const;
  Site& take(const CallArguments& arguments, const CallOptions& options);

  std::vector<Site> sites_;  // the one used longest ago first
};

}  // namespace tersum
