// ErrorSamples: what codecs would have done to recent sums, measured on samples of them.
//
// Now and then a call that leaves its codec open and names an error sends, before the sum itself, a
// few of its values exactly and with them how far each codec that it may take moves them on this
// rank (auto_codecs.h).
// Summed over the ranks that gives the sample's exact sum and the error that all contributions
// bring to it; coding that sum adds what the plan does to results. All ranks get the same bits, so
// all come to the same codec.
//
// A codec that flattens is judged by what its site knows of its channels when the sample is taken,
// and only where all ranks knew the same then; before that, and where channels are not known, it is
// not taken.
//
// Error here is relative and of a whole sum: ||result - exact|| / ||exact||, each a root of a sum
// of squares. It says what is usual, where block_error_bound says what is possible.
//
// Thread safety: none of its own. Invariant: ranks hold the same state, also after calls in which
// they disagreed: it changes only by messages that all of them have added to, about one call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/channel_state.h"
#include "plan/plan.h"
#include "runtime/start_call.h"
#include "runtime/tuning/auto_codecs.h"
#include "runtime/tuning/codec_cost.h"

namespace tersum {

struct SampledCodec {
  std::string_view codec;  // of AutoCodecs, or exact; for ever
  double rel_error = 0;    // the largest of the recent samples
  CodingSeconds coding;    // the ranks' mean; zeros: unknown

  bool operator==(const SampledCodec&) const = default;
};

// All codecs that the recent samples allow.
struct SampledCodecs {
  std::vector<SampledCodec> within;            // the fewest bits first; empty: none but exact
  std::vector<CodingSeconds> measured_coding;  // likewise, of tuning_codecs()
};

class ErrorSamples {
 public:
  static constexpr size_t kRuns = 8;
  static constexpr size_t kRunValues = 512;  // whole blocks of most codecs of the ladder
  static constexpr size_t kSitesKept = 64;
  // Measuring takes about a millisecond, whatever the length. Of 1 Mi values and more every 16th
  // call is measured, of 64 Ki, whose exact sums take 40 us in shared memory, and less every 256th:
  // 4 us a call at most.
  static constexpr uint64_t calls_per_sample(size_t count) {
    constexpr size_t kValuesPerSample = size_t{16} << 20;
    return std::clamp<uint64_t>(kValuesPerSample / std::max<size_t>(count, 1), 16, 256);
  }
  static constexpr size_t kRecent = 4;
  // Where a budget goes to the largest values of a section, a sample's few largest say what becomes
  // of it: int8/128+sparse:0.5% of 1.6 % outliers seemed to lose 12 % less than it did.
  static constexpr double kSectionDoubt = 1.2;
  // At the end of a message: of what is known of channels, and of the site.
  static constexpr size_t kDigests = 2;
  static constexpr size_t kCodingTimes = 3;  // of a codec

  // Whether the call is to be measured, of an input of `count` values, whose number in its group is
  // `call`: until its site (named by the options; one for each length, type, operation and
  // collective) was twice, while there is room for sites; and by lot, one in calls_per_sample().
  [[nodiscard]] bool is_due(const CallArguments& arguments, const CallOptions& options,
                            size_t count, uint64_t call) const;

  // Which runs of kRunValues values are looked at, of `count`: evenly spaced, elsewhere at each
  // call; in ascending order.
  [[nodiscard]] static std::vector<size_t> run_starts(size_t count, uint64_t call);

  // What this rank adds to the group's message: a sample, then the squared error of each codec that
  // options.codec allows on it, then what coding costs here, then digests of what is known of the
  // channels, and of the site. `count` values are the whole input. `channels`: what the site has
  // learned; null: nothing. `coding`: as coding_costs() has it; empty: unknown.
  [[nodiscard]] static std::vector<double> measure(const CallArguments& arguments,
                                                   const CallOptions& options, size_t count,
                                                   uint64_t call,
                                                   const ChannelState* channels = nullptr,
                                                   std::span<const CodingSeconds> coding = {});

  // From the sum of the ranks' messages; `terms` are those of the plan that the call would take.
  // Nothing changes if the ranks' sites differ. A sample with NaN or Inf teaches nothing, nor do
  // zeros out of more than what was looked at (`count` values). `channels`: as measure() got it.
  void learn(const CallArguments& arguments, const CallOptions& options, size_t count,
             uint64_t call, const std::vector<double>& summed, const PlanErrorTerms& terms,
             int ranks, const ChannelState* channels = nullptr);

  // What sites know of their channels is no longer what it was: codecs that flatten wait for the
  // next sample.
  void forget_channels();

  // Whether the site's last sample judged codecs that flatten by as many rows as are remembered.
  // Until then all its calls teach, and from then on those that are measured or flatten: learning
  // from an array takes as long as summing a short one does. That channels were forgotten changes
  // nothing until the next sample, for a call that has begun on some ranks must not teach there
  // alone.
  [[nodiscard]] bool has_judged_channels(const CallArguments& arguments,
                                         const CallOptions& options) const;

  // The codec of the fewest bits, as contribution and sum, whose error stayed within `rel_error` in
  // all recent samples of the site that showed it; "exact" where none did; nothing where no sample
  // was taken.
  [[nodiscard]] std::optional<SampledCodec> cheapest(const CallArguments& arguments,
                                                     const CallOptions& options,
                                                     double rel_error) const;

  // The codecs of which that holds, cheapest() first.
  [[nodiscard]] std::optional<SampledCodecs> within(const CallArguments& arguments,
                                                    const CallOptions& options,
                                                    double rel_error) const;

  // The same set as bits, by index of AutoCodecs; without an allocation.
  [[nodiscard]] std::optional<uint32_t> within_bits(const CallArguments& arguments,
                                                    const CallOptions& options,
                                                    double rel_error) const;

  // The same within options.max_rel_error, where a sample has shown it and the call is not due.
  [[nodiscard]] std::optional<uint32_t> known_bits(const CallArguments& arguments,
                                                   const CallOptions& options, size_t count,
                                                   uint64_t call) const;

 private:
  struct Site {
    Collective collective = Collective::kAllReduce;
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    size_t count = 0;
    uint64_t tensors = 0;
    size_t channels = 0;
    const AutoCodecs* codecs = nullptr;
    std::vector<size_t> costs = {};          // by codec of `codecs`: what it sends among the ranks
    std::vector<CodingSeconds> coding = {};  // of tuning_codecs(), then of `codecs`: means
    std::string name;
    uint64_t taken = 0;    // messages
    uint64_t samples = 0;  // of them that taught something
    bool has_judged_channels = false;
    // Of the last samples, by codec of `codecs`; NaN: the sample did not show it.
    std::array<std::vector<double>, kRecent> errors = {};
    // What bits_within() said last, for calls that come again before the site learns; below 0:
    // nothing.
    mutable double asked_rel_error = -1;
    mutable uint32_t asked_bits = 0;
  };
  // Negative: no recent sample showed it, or it was above `rel_error` in one.
  [[nodiscard]] static double error_within(const Site& site, size_t codec, double rel_error);
  [[nodiscard]] static uint32_t bits_within(const Site& site, double rel_error);
  [[nodiscard]] bool is_site_due(const Site* site, size_t count, uint64_t call) const;
  [[nodiscard]] const Site* find(const CallArguments& arguments, const CallOptions& options) const;
  Site& take(const CallArguments& arguments, const CallOptions& options);

  std::vector<Site> sites_;  // the one measured longest ago first
};

}  // namespace tersum
