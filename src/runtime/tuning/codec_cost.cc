#include "runtime/tuning/codec_cost.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <random>

#include "base/median.h"
#include "runtime/codec_timing.h"
#include "runtime/tuning/tuning_codecs.h"

namespace tersum {
namespace {

// Stays in a core's cache, as the slices of a call do.
constexpr size_t kValues = 64 * 1024;
constexpr size_t kRounds = 5;

Result<CodingSeconds> time_kernels(const std::string& spec) {
  std::minstd_rand random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kValues);
  for (float& value : values) value = normal(random);
  Result<CodecTiming> timing = time_codec(spec, values, kRounds);
  if (!timing.ok()) return timing.status();
  constexpr double kBytes = kValues * sizeof(float);
  return CodingSeconds{median(timing->encode) / kBytes, median(timing->decode_add) / kBytes};
}

Result<CodingSeconds> remembered_kernels(const std::string& spec) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::string, CodingSeconds>;
  const std::lock_guard lock(mutex);
  if (const auto found = known->find(spec); found != known->end()) return found->second;
  Result<CodingSeconds> seconds = time_kernels(spec);
  if (seconds.ok()) known->emplace(spec, seconds.value());
  return seconds;
}

double coding_cost(std::string_view spec, const CodingPlace& place) {
  std::string timed(spec);
  constexpr std::string_view kFlatten = "+flatten";
  if (const size_t at = timed.find(kFlatten); at != std::string::npos) {
    timed.replace(at, kFlatten.size(), "+hadamard");
  }
  const Result<const Codec*> codec = find_codec(timed, DataType::kFloat32, ReduceOp::kSum);
  if (!codec.ok()) return 0;
  const Result<CodecCost> cost = measured_codec_cost(*codec.value(), place);
  return cost.ok() ? cost.value().seconds_per_byte : 0;
}

}  // namespace

double coding_seconds_per_byte(const CodingSeconds& kernels, const CodingPlace& place) {
  const double others = static_cast<double>(place.ranks - 1) / place.ranks;
  const double waiting = std::max(static_cast<double>(place.ranks_here) / place.cpus, 1.0);
  return waiting * (kernels.encode + 2 * others * kernels.decode_add);
}

Result<CodecCost> measured_codec_cost(const Codec& codec, const CodingPlace& place) {
  if (codec.shared_sums() != nullptr || codec.flattens() || codec.feeds_back()) {
    return invalid_argument("a call with " + codec.spec().to_string() +
                            " is more than its kernels and its wire");
  }
  const Result<CodingSeconds> kernels = remembered_kernels(codec.spec().to_string());
  if (!kernels.ok()) return kernels.status();
  constexpr double kBytes = kValues * sizeof(float);
  const auto wire_bytes = static_cast<double>(codec.wire_bytes(kValues));
  return CodecCost{wire_bytes / kBytes, coding_seconds_per_byte(kernels.value(), place)};
}

std::vector<double> coding_costs(const AutoCodecs& list, const CodingPlace& place) {
  std::vector<double> costs;
  for (const std::string_view spec : tuning_codecs()) costs.push_back(coding_cost(spec, place));
  for (const AutoCodec& codec : list.codecs) costs.push_back(coding_cost(codec.spec, place));
  return costs;
}

Result<std::vector<CodecPrice>> measured_codec_prices(const CodingPlace& place) {
  std::vector<CodecPrice> prices;
  for (const std::string_view name : tuning_codecs()) {
    const Result<const Codec*> codec = find_codec(name, DataType::kFloat32, ReduceOp::kSum);
    if (!codec.ok()) return codec.status();
    const Result<CodecCost> cost = measured_codec_cost(*codec.value(), place);
    if (!cost.ok()) return cost.status();
    prices.push_back({name, cost.value()});
  }
  return prices;
}

}  // namespace tersum
