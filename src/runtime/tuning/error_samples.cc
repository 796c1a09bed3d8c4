#include "runtime/tuning/error_samples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/mix_bits.h"
#include "codec/codec.h"
#include "codec/kernels/added_terms.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/outlier_selection.h"
#include "codec/value_kind.h"
#include "runtime/group_id.h"
#include "runtime/tuning/tuning_codecs.h"

namespace tersum {
namespace {

const AutoCodecs& codecs_of(const CallOptions& options) {
  const Result<const AutoCodecs*> codecs = find_auto_codecs(options.codec);
  TERSUM_CHECK(codecs.ok());
  return *codecs.value();
}

// What was looked at of an array: runs, the first value of each in the array, and of how many.
struct Looked {
  std::span<const float> values;
  std::span<const size_t> starts;
  size_t count;
};

// The squared distance between values and what one coding makes of them.
double squared_error(const Codec& codec, std::span<const float> values, const SlicePlace& place) {
  std::vector<std::byte> wire(codec.wire_bytes(values.size()));
  std::vector<float> decoded(values.size());
  codec.encode(values.data(), values.size(), wire.data(), place);
  codec.decode(wire.data(), values.size(), decoded.data(), place);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
    sum += error * error;
  }
  return sum;
}

// Runs lie side by side in one slice, but where their places count: a channel's factor goes by its
// index. And a budget, of the largest values say, is of use within its section alone: where runs
// are of several sections, each is coded apart, too, and the larger error counts, since a run's
// budget is rounded up (0.5 % of 512 values are 3), and that of all runs ignores how they differ.
double squared_error(const AutoCodec& chosen, const Codec& codec, const Looked& looked,
                     const ChannelState* channels) {
  const bool is_flattened = codec.flattens();
  double together = 0;
  if (!is_flattened) {
    together = squared_error(codec, looked.values, {});
    if (!chosen.is_sectioned || looked.count <= kSectionValues) return together;
  }
  double sum = 0;
  for (size_t i = 0; i < looked.starts.size(); ++i) {
    const size_t begin = i * ErrorSamples::kRunValues;
    const size_t here = std::min(ErrorSamples::kRunValues, looked.values.size() - begin);
    SlicePlace place;
    place.first = looked.starts[i];
    place.factors = is_flattened ? channels->factors() : nullptr;
    sum += squared_error(codec, looked.values.subspan(begin, here), place);
  }
  return std::max(sum, together);
}

bool knows_channels(const ChannelState* channels) {
  return channels != nullptr && channels->factors() != nullptr;
}

// As digest_of(); never 0, which says that nothing is known.
double channels_digest(const ChannelState* channels) {
  return knows_channels(channels) ? static_cast<double>(channels->digest() >> 28 | 1) : 0;
}

// A number that is exact in float64, as are sums of it over 65,535 ranks.
double digest_of(const CallArguments& arguments, const CallOptions& options) {
  uint64_t digest = text_digest(options.site);
  const auto fold = [&](auto field) {
    digest = mix_bits(digest + 0x9e3779b97f4a7c15U + static_cast<uint64_t>(field));
  };
  fold(arguments.collective);
  fold(arguments.type);
  fold(arguments.op);
  fold(arguments.count);
  fold(arguments.tensors);
  fold(options.channels);
  fold(text_digest(codecs_of(options).spec));
  return static_cast<double>(digest >> 28);
}

}  // namespace

std::vector<size_t> ErrorSamples::run_starts(size_t count, uint64_t call) {
  const size_t runs = (count + kRunValues - 1) / kRunValues;
  const size_t taken = std::min(runs, kRuns);
  const double phase = std::ldexp(static_cast<double>(mix_bits(call) >> 11), -53);
  std::vector<size_t> starts(taken);
  for (size_t i = 0; i < taken; ++i) {
    const double place =
        (static_cast<double>(i) + phase) * static_cast<double>(runs) / static_cast<double>(taken);
    starts[i] = std::min(static_cast<size_t>(place), runs - 1) * kRunValues;
  }
  return starts;
}

const ErrorSamples::Site* ErrorSamples::find(const CallArguments& arguments,
                                             const CallOptions& options) const {
  // By what a list names and not by how it is written, which ranks may do differently.
  const std::string& codecs = codecs_of(options).spec;
  const auto found = std::find_if(sites_.begin(), sites_.end(), [&](const Site& site) {
    return site.collective == arguments.collective && site.type == arguments.type &&
           site.op == arguments.op && site.count == arguments.count &&
           site.tensors == arguments.tensors && site.channels == options.channels &&
           site.codecs->spec == codecs && site.name == options.site;
  });
  return found == sites_.end() ? nullptr : &*found;
}

ErrorSamples::Site& ErrorSamples::take(const CallArguments& arguments, const CallOptions& options) {
  const Site* const known = find(arguments, options);
  if (known != nullptr) {
    const auto place = sites_.begin() + (known - sites_.data());
    std::rotate(place, place + 1, sites_.end());
    return sites_.back();
  }
  if (sites_.size() >= kSitesKept) sites_.erase(sites_.begin());
  Site site;
  site.collective = arguments.collective;
  site.type = arguments.type;
  site.op = arguments.op;
  site.count = arguments.count;
  site.tensors = arguments.tensors;
  site.channels = options.channels;
  site.codecs = &codecs_of(options);
  site.name = options.site;
  sites_.push_back(std::move(site));
  return sites_.back();
}

bool ErrorSamples::is_due(const CallArguments& arguments, const CallOptions& options, size_t count,
                          uint64_t call) const {
  return is_site_due(find(arguments, options), count, call);
}

bool ErrorSamples::is_site_due(const Site* site, size_t count, uint64_t call) const {
  if (site == nullptr ? sites_.size() < kSitesKept : site->taken < 2) return true;
  return mix_bits(call) % calls_per_sample(count) == 0;
}

std::vector<double> ErrorSamples::measure(const CallArguments& arguments,
                                          const CallOptions& options, size_t count, uint64_t call,
                                          const ChannelState* channels,
                                          std::span<const CodingSeconds> coding) {
  const ValueKind kind = value_kind(arguments.type);
  const ElementKernels& kernels = element_kernels();
  const AddedTerms added{options.residual, options.bias,
                         options.bias_count > 0 ? options.bias_count : 1};
  std::vector<float> sample;
  sample.reserve(kRuns * kRunValues);
  alignas(64) float run[kRunValues + kTilePad];
  const std::vector<size_t> starts = run_starts(count, call);
  for (const size_t first : starts) {
    const size_t here = std::min(kRunValues, count - first);
    load_with_terms(kernels, kind, arguments.input, added, 0, first, here, run);
    sample.insert(sample.end(), run, run + here);
  }
  // Of a list `count` are the values that are looked at.
  const size_t whole = std::max<size_t>(count, arguments.tensors);
  const std::vector<AutoCodec>& codecs = codecs_of(options).codecs;
  std::vector<double> message(sample.begin(), sample.end());
  const size_t costs = tuning_codecs().size() + codecs.size();
  TERSUM_CHECK(coding.empty() || coding.size() == costs);
  message.reserve(sample.size() + codecs.size() + kCodingTimes * costs + kDigests);
  for (const AutoCodec& codec : codecs) {
    const bool is_shown = !codec.codec->flattens() || knows_channels(channels);
    message.push_back(
        is_shown ? squared_error(codec, *codec.codec, {sample, starts, whole}, channels) : 0);
  }
  for (size_t i = 0; i < costs; ++i) {
    const CodingSeconds cost = coding.empty() ? CodingSeconds() : coding[i];
    message.push_back(cost.encode);
    message.push_back(cost.decode_add);
    message.push_back(cost.finish);
  }
  message.push_back(channels_digest(channels));
  message.push_back(digest_of(arguments, options));
  return message;
}

void ErrorSamples::learn(const CallArguments& arguments, const CallOptions& options, size_t count,
                         uint64_t call, const std::vector<double>& summed,
                         const PlanErrorTerms& terms, int ranks, const ChannelState* channels) {
  const std::vector<AutoCodec>& codecs = codecs_of(options).codecs;
  const size_t costs = tuning_codecs().size() + codecs.size();
  const size_t behind = codecs.size() + kCodingTimes * costs + kDigests;
  TERSUM_CHECK(summed.size() > behind);
  if (summed.back() != ranks * digest_of(arguments, options)) return;
  const bool channels_known =
      knows_channels(channels) && summed[summed.size() - 2] == ranks * channels_digest(channels);
  Site& site = take(arguments, options);
  ++site.taken;
  site.costs.clear();
  for (const AutoCodec& codec : codecs) site.costs.push_back(wire_cost(codec, ranks));
  site.coding.clear();
  for (size_t i = 0; i < costs; ++i) {
    const double* const times = &summed[summed.size() - kDigests - kCodingTimes * (costs - i)];
    site.coding.push_back({times[0] / ranks, times[1] / ranks, times[2] / ranks});
  }
  const std::vector<float> sums(summed.begin(), summed.end() - static_cast<ptrdiff_t>(behind));
  double size = 0;
  for (const float value : sums) size += static_cast<double>(value) * static_cast<double>(value);
  if (!std::isfinite(size) || (size == 0 && sums.size() < count)) return;
  site.has_judged_channels = channels_known && channels->rows() >= ChannelState::kRowsRemembered;
  const std::vector<size_t> starts = run_starts(count, call);
  // Of `ranks` contributions `terms.contributions` are coded; errors of different codings add as
  // squares.
  const double coded = terms.contributions / static_cast<double>(ranks);
  std::vector<double> errors(codecs.size());
  for (size_t i = 0; i < codecs.size(); ++i) {
    const Codec& codec = *codecs[i].codec;
    if (codec.flattens() && !channels_known) {
      errors[i] = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const double before = coded * summed[sums.size() + i];
    const Codec& gathered = codec.gathered(static_cast<uint32_t>(ranks));
    const Looked looked{sums, starts, count};
    double of_sums = terms.finals * squared_error(codecs[i], gathered, looked, channels);
    if (terms.partials > 0) {
      of_sums += terms.partials * squared_error(codecs[i], codec, looked, channels);
    }
    // What is coded then is the sum with all that was lost of it before, and loses in proportion.
    const double moved = before + of_sums * (size == 0 ? 1 : 1 + before / size);
    const double error = moved == 0 ? 0 : std::sqrt(moved / size);
    errors[i] = std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
  }
  site.errors[site.samples++ % kRecent] = std::move(errors);
  site.asked_rel_error = -1;
}

void ErrorSamples::forget_channels() {
  for (Site& site : sites_) {
    site.asked_rel_error = -1;
    for (std::vector<double>& errors : site.errors) {
      for (size_t i = 0; i < errors.size(); ++i) {
        if (!site.codecs->codecs[i].codec->flattens()) continue;
        errors[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
}

bool ErrorSamples::has_judged_channels(const CallArguments& arguments,
                                       const CallOptions& options) const {
  const Site* const site = find(arguments, options);
  return site != nullptr && site->has_judged_channels;
}

double ErrorSamples::error_within(const Site& site, size_t codec, double rel_error) {
  double largest = -1;
  for (const std::vector<double>& errors : site.errors) {
    if (!errors.empty() && !std::isnan(errors[codec])) largest = std::max(largest, errors[codec]);
  }
  const double doubt = site.codecs->codecs[codec].is_sectioned ? kSectionDoubt : 1;
  return largest * doubt > rel_error ? -1 : largest;
}

std::optional<SampledCodec> ErrorSamples::cheapest(const CallArguments& arguments,
                                                   const CallOptions& options,
                                                   double rel_error) const {
  const Site* const site = find(arguments, options);
  if (site == nullptr || site->samples == 0) return std::nullopt;
  SampledCodec best{"exact", 0, {}};
  size_t least = std::numeric_limits<size_t>::max();
  // From the fewest bits of contributions upwards, of equal ones the faster first.
  for (size_t i = site->codecs->codecs.size(); i-- > 0;) {
    const double error = error_within(*site, i, rel_error);
    if (error < 0 || site->costs[i] >= least) continue;
    least = site->costs[i];
    best = {site->codecs->codecs[i].spec, error, {}};
  }
  return best;
}

std::optional<SampledCodecs> ErrorSamples::within(const CallArguments& arguments,
                                                  const CallOptions& options,
                                                  double rel_error) const {
  const Site* const site = find(arguments, options);
  if (site == nullptr || site->samples == 0) return std::nullopt;
  std::vector<std::pair<size_t, size_t>> order;  // what it costs; of equal ones the faster first
  const size_t codecs = site->codecs->codecs.size();
  for (size_t i = 0; i < codecs; ++i) {
    if (error_within(*site, i, rel_error) >= 0) order.emplace_back(site->costs[i], codecs - i);
  }
  std::sort(order.begin(), order.end());
  const size_t measured = tuning_codecs().size();
  SampledCodecs found;
  found.measured_coding.assign(site->coding.begin(),
                               site->coding.begin() + static_cast<ptrdiff_t>(measured));
  for (const auto& [cost, from_last] : order) {
    const size_t i = codecs - from_last;
    found.within.push_back({site->codecs->codecs[i].spec, error_within(*site, i, rel_error),
                            site->coding[measured + i]});
  }
  return found;
}

std::optional<uint32_t> ErrorSamples::within_bits(const CallArguments& arguments,
                                                  const CallOptions& options,
                                                  double rel_error) const {
  const Site* const site = find(arguments, options);
  if (site == nullptr || site->samples == 0) return std::nullopt;
  return bits_within(*site, rel_error);
}

std::optional<uint32_t> ErrorSamples::known_bits(const CallArguments& arguments,
                                                 const CallOptions& options, size_t count,
                                                 uint64_t call) const {
  const Site* const site = find(arguments, options);
  if (site == nullptr || site->samples == 0 || is_site_due(site, count, call)) return std::nullopt;
  return bits_within(*site, options.max_rel_error);
}

uint32_t ErrorSamples::bits_within(const Site& site, double rel_error) {
  static_assert(AutoCodecs::kMost <= 32);
  if (site.asked_rel_error == rel_error) return site.asked_bits;
  uint32_t bits = 0;
  for (size_t i = 0; i < site.codecs->codecs.size(); ++i) {
    if (error_within(site, i, rel_error) >= 0) bits |= uint32_t{1} << i;
  }
  site.asked_rel_error = rel_error;
  site.asked_bits = bits;
  return bits;
}

}  // namespace tersum
