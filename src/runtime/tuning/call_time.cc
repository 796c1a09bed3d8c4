#include "runtime/tuning/call_time.h"

#include <algorithm>
#include <string>

#include "runtime/tuning/tuning_codecs.h"

namespace tersum {

std::optional<double> measured_seconds(const TuningTable& table, size_t float_bytes,
                                       const Codec& codec, PlanKind plan) {
  const auto& measured = tuning_codecs();
  const auto same = std::find(measured.begin(), measured.end(), codec.spec().to_string());
  return same == measured.end() ? std::nullopt : table.seconds({*same, plan}, float_bytes);
}

std::optional<double> expected_seconds(const TuningTable& table, const CodingPlace& place,
                                       const CallArguments& arguments, std::string_view codec,
                                       PlanKind plan) {
  if (arguments.collective != Collective::kAllReduce || arguments.count == 0) return std::nullopt;
  const Result<const Codec*> found = find_codec(codec, arguments.type, arguments.op);
  if (!found.ok() || place.ranks < 2 || table.empty()) return std::nullopt;
  if (place.ranks == 2 && plan == PlanKind::kRing) plan = PlanKind::kTwoStep;
  if (found.value()->lossless()) {
    return table.seconds({tuning_codecs().front(), plan},
                         arguments.count * element_bytes(arguments.type));
  }
  const size_t bytes = arguments.count * sizeof(float);
  if (const auto seconds = measured_seconds(table, bytes, *found.value(), plan)) return seconds;
  const Result<CodecCost> cost = measured_codec_cost(*found.value(), place, plan);
  if (!cost.ok()) return std::nullopt;
  const Result<std::vector<CodecPrice>> prices = measured_codec_prices(place, plan);
  if (!prices.ok()) return std::nullopt;
  return model_seconds(table.points(), plan, bytes, cost.value(), prices.value(),
                       table.cached_bytes());
}

std::optional<double> worked_out_seconds(const TuningTable& table, size_t count, int ranks,
                                         const Codec& codec, const AgreedCoding& coding,
                                         PlanKind plan) {
  const size_t float_bytes = count * sizeof(float);
  const CodingPlace place{ranks, 1, 1};  // ranks told what they wait for each other, too
  std::vector<CodecPrice> prices;
  for (size_t i = 0; i < coding.measured.size(); ++i) {
    const std::string_view name = tuning_codecs()[i];
    const double seconds = coding_seconds_per_byte(coding.measured[i], place, plan);
    prices.push_back({name, {tuning_wire_ratio(name), seconds}});
  }
  // A contribution, and a finished sum, which some codecs give more room.
  const Codec& gathered = codec.gathered(static_cast<uint32_t>(ranks));
  const size_t both = codec.wire_bytes(count) + gathered.wire_bytes(count);
  const double wire_ratio = static_cast<double>(both) / (2 * static_cast<double>(float_bytes));
  const double seconds = coding_seconds_per_byte(coding.codec, place, plan);
  return model_seconds(table.points(), plan, float_bytes, {wire_ratio, seconds}, prices,
                       table.cached_bytes());
}

}  // namespace tersum
