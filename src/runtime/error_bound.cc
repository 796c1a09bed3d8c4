// The bound of a result, composed from the codec's per-block bound and the plan's terms.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "plan/plan.h"
#include "runtime/communicator_impl.h"
#include "runtime/error_bound.h"
#include "runtime/tuning/open_plans.h"
#include "tersum/communicator.h"

namespace tersum {
namespace {

// Half a unit in the last place, relative to the value: 2^-p for a significand of p bits. 0 where
// sums are exact (integers wrap, they do not round).
double rounding_unit(DataType type) {
  switch (type) {
    case DataType::kFloat64:
      return std::ldexp(1.0, -53);
    case DataType::kFloat32:
      return std::ldexp(1.0, -24);
    case DataType::kBFloat16:
      return std::ldexp(1.0, -8);
    case DataType::kFloat16:
      return std::ldexp(1.0, -11);
    default:
      return 0.0;
  }
}

// Below the smallest normal number rounding is absolute: half the smallest denormal.
double rounding_floor(DataType type) {
  switch (type) {
    case DataType::kFloat64:
      return std::numeric_limits<double>::denorm_min();
    case DataType::kFloat32:
      return std::numeric_limits<float>::denorm_min();
    case DataType::kBFloat16:
      return std::ldexp(1.0, -133);
    case DataType::kFloat16:
      return std::ldexp(1.0, -24);
    default:
      return 0.0;
  }
}

}  // namespace

double compose_error_bound(const Codec& codec, const PlanErrorTerms& terms, int ranks,
                           double absmax, double sum_absmax) {
  // A call's sum has in it what earlier calls lost, of values that nobody names here.
  if (codec.feeds_back()) return std::numeric_limits<double>::infinity();
  const DataType type = codec.value_type();
  const auto size = static_cast<double>(ranks);
  const double accumulate =
      rounding_unit(type == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32);
  // Every sum of at most `size` terms rounds size - 1 times, each at most its magnitude times
  // 2^-24.
  double error = is_floating(type) ? (size - 1) * accumulate * size * absmax * 1.01 : 0.0;
  if (const SharedSums* const sums = codec.shared_sums(); sums != nullptr && ranks > 1) {
    if (!check_sum_ranks(codec, static_cast<uint32_t>(ranks)).ok()) {
      return std::numeric_limits<double>::infinity();
    }
    // One scale for all ranks, and codes are added exactly, or with a loss that is in this bound.
    const Codec& codes = sums->contributions(static_cast<uint32_t>(ranks));
    error += size * codes.block_error_bound(absmax);
    return error + 2 * (rounding_unit(type) * (sum_absmax + error) + rounding_floor(type));
  }
  const auto quantized = codec.quantizes_own() ? static_cast<uint32_t>(ranks) : terms.contributions;
  error += quantized * codec.block_error_bound(absmax);
  // What travels or is stored is rounded to the value type once more.
  const double stored = rounding_unit(type);
  const double floor = rounding_floor(type);
  for (uint32_t i = 0; i < terms.partials; ++i) {
    const double magnitude = size * absmax + error;
    error += codec.block_error_bound(magnitude) + stored * magnitude + floor;
  }
  if (terms.finals > 0) {
    const Codec& gathered = codec.gathered(static_cast<uint32_t>(ranks));
    error += gathered.block_error_bound(sum_absmax + error);
  }
  error += 2 * (stored * (sum_absmax + error) + floor);
  return error;
}

Result<double> Communicator::error_bound(std::string_view codec, PlanKind plan, size_t count,
                                         DataType type, double absmax, double sum_absmax,
                                         Collective collective) const {
  if (!impl_) return invalid_argument("this Communicator is empty");
  if (!reduces(collective) || collective == Collective::kBarrier) {
    return invalid_argument(std::string(collective_name(collective)) +
                            " sums nothing up; ask codec_error_bound for what is only copied");
  }
  Result<const Codec*> found = find_codec(codec, type, ReduceOp::kSum);
  if (!found.ok()) return found.status();
  const Codec& format = *found.value();
  PlanRequest request;
  request.size = impl_->member().size();
  TERSUM_RETURN_IF_ERROR(check_sum_ranks(format, static_cast<uint32_t>(request.size)));
  request.collective = collective;
  request.count = count * part_count(collective, request.size);
  request.topology = impl_->member().topology.get();
  request.granule = format.block();
  std::vector<PlanKind> plans = {plan};
  if (plan == PlanKind::kAuto) {
    const std::shared_ptr<const TuningTable> table = impl_->table();
    const PathContext context{impl_->member().ground(), table.get(), &impl_->rules(), {}};
    plans =
        open_plans(context, {collective, nullptr, nullptr, count, type, ReduceOp::kSum, 0}, format);
  }
  double bound = 0;
  for (const PlanKind kind : plans) {
    request.kind = kind;
    Result<Plan> made = make_plan(request);
    if (!made.ok()) return made.status();
    const PlanErrorTerms terms = plan_error_terms(made.value());
    bound = std::max(bound, compose_error_bound(format, terms, request.size, absmax, sum_absmax));
  }
  return bound;
}

}  // namespace tersum
