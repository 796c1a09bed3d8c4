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

const std::vector<float>& normal_values() {
  static const auto* const drawn = [] {
    std::minstd_rand random(1);
    std::normal_distribution<float> normal;
    auto* const values = new std::vector<float>(kValues);
    for (float& value : *values) value = normal(random);
    return values;
  }();
  return *drawn;
}

Result<CodingSeconds> time_kernels(const std::string& spec) {
  Result<CodecTiming> timing = time_codec(spec, normal_values(), kRounds, /*finishes=*/true);
  if (!timing.ok()) return timing.status();
  constexpr double kBytes = kValues * sizeof(float);
  return CodingSeconds{median(timing->encode) / kBytes, median(timing->decode_add) / kBytes,
                       median(timing->finish) / kBytes};
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

Result<CodingSeconds> kernels_alone(const Codec& codec) {
  if (codec.shared_sums() != nullptr || codec.flattens() || codec.feeds_back()) {
    return invalid_argument("a call with " + codec.spec().to_string() +
                            " is more than its kernels and its wire");
  }
  return remembered_kernels(codec.spec().to_string());
}

double waiting(const CodingPlace& place) {
  return std::max(static_cast<double>(place.ranks_of_host) / place.cpus, 1.0);
}

CodingSeconds coding_cost(std::string_view spec) {
  std::string timed(spec);
  constexpr std::string_view kFlatten = "+flatten";
  const size_t at = timed.find(kFlatten);
  const bool flattens = at != std::string::npos;
  if (flattens) timed.replace(at, kFlatten.size(), "+hadamard");
  const Result<const Codec*> codec = find_codec(timed, DataType::kFloat32, ReduceOp::kSum);
  if (!codec.ok()) return {};
  const Result<CodingSeconds> kernels = kernels_alone(*codec.value());
  if (!kernels.ok()) return {};
  const double turned = flattens ? kernels.value().encode : 0;
  return {kernels.value().encode + turned, kernels.value().decode_add,
          kernels.value().finish + turned};
}

}  // namespace

double coding_seconds_per_byte(const CodingSeconds& kernels, const CodingPlace& place,
                               PlanKind plan) {
  const double others = place.ranks - 1;
  if (plan == PlanKind::kOneShot) {
    return waiting(place) * (kernels.encode + others * kernels.decode_add);
  }
  // Of each of the `ranks` parts of an array.
  const double sent = others * kernels.encode;
  const double owned = (others - 1) * kernels.decode_add + kernels.finish;
  const double read = others * kernels.decode_add;
  return waiting(place) * (sent + owned + read) / place.ranks;
}

Result<CodecCost> measured_codec_cost(const Codec& codec, const CodingPlace& place, PlanKind plan) {
  const Result<CodingSeconds> kernels = kernels_alone(codec);
  if (!kernels.ok()) return kernels.status();
  constexpr double kBytes = kValues * sizeof(float);
  const auto wire_bytes = static_cast<double>(codec.wire_bytes(kValues));
  return CodecCost{wire_bytes / kBytes, coding_seconds_per_byte(kernels.value(), place, plan)};
}

std::vector<CodingSeconds> coding_costs(const AutoCodecs& list, const CodingPlace& place) {
  std::vector<CodingSeconds> costs;
  for (const std::string_view spec : tuning_codecs()) costs.push_back(coding_cost(spec));
  for (const AutoCodec& codec : list.codecs) costs.push_back(coding_cost(codec.spec));
  for (CodingSeconds& cost : costs) {
    cost.encode *= waiting(place);
    cost.decode_add *= waiting(place);
    cost.finish *= waiting(place);
  }
  return costs;
}

Result<std::vector<CodecPrice>> measured_codec_prices(const CodingPlace& place, PlanKind plan) {
  std::vector<CodecPrice> prices;
  for (const std::string_view name : tuning_codecs()) {
    const Result<const Codec*> codec = find_codec(name, DataType::kFloat32, ReduceOp::kSum);
    if (!codec.ok()) return codec.status();
    const Result<CodecCost> cost = measured_codec_cost(*codec.value(), place, plan);
    if (!cost.ok()) return cost.status();
    prices.push_back({name, cost.value()});
  }
  return prices;
}

}  // namespace tersum
