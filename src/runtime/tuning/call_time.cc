#include "runtime/tuning/call_time.h"

#include <algorithm>
#include <string>

#include "runtime/tuning/tuning_codecs.h"

namespace tersum {

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
  const std::string spec = found.value()->spec().to_string();
  const auto& measured = tuning_codecs();
  const auto same = std::find(measured.begin(), measured.end(), spec);
  if (same != measured.end()) {
    if (const auto seconds = table.seconds({*same, plan}, bytes)) return seconds;
  }
  const Result<CodecCost> cost = measured_codec_cost(*found.value(), place);
  if (!cost.ok()) return std::nullopt;
  const Result<std::vector<CodecPrice>> prices = measured_codec_prices(place);
  if (!prices.ok()) return std::nullopt;
  return model_seconds(table.points(), plan, bytes, cost.value(), prices.value());
}

}  // namespace tersum
