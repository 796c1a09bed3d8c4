#include "support/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plan/plan.h"
#include "runtime/error_bound.h"

namespace tersum::testing {
namespace {

float half_to_float(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) value = fraction == 0 ? HUGE_VAL : NAN;
  return static_cast<float>((bits & 0x8000) != 0 ? -value : value);
}

// Values here are chosen so that rounding them to 8 or 11 bits is exact; see random_array.
double store_value(DataType type, double value, std::byte* out) {
  const auto put = [&](auto typed) {
    std::memcpy(out, &typed, sizeof(typed));
    return static_cast<double>(typed);
  };
  switch (type) {
    case DataType::kFloat32:
      return put(static_cast<float>(value));
    case DataType::kFloat64:
      return put(value);
    case DataType::kInt32:
      return put(static_cast<int32_t>(value));
    case DataType::kInt64:
      return put(static_cast<int64_t>(value));
    case DataType::kUint8:
      return put(static_cast<uint8_t>(static_cast<int64_t>(std::abs(value)) & 0xff));
    case DataType::kBFloat16: {
      auto typed = static_cast<float>(value);
      uint32_t bits = 0;
      std::memcpy(&bits, &typed, 4);
      bits &= 0xffff0000U;
      std::memcpy(&typed, &bits, 4);
      put(static_cast<uint16_t>(bits >> 16));
      return typed;
    }
    case DataType::kFloat16: {
      const auto typed = static_cast<_Float16>(static_cast<float>(value));
      put(typed);
      return static_cast<double>(static_cast<float>(typed));
    }
  }
  return 0;
}

double load_value(DataType type, const std::byte* in) {
  const auto get = [&](auto typed) {
    std::memcpy(&typed, in, sizeof(typed));
    return typed;
  };
  switch (type) {
    case DataType::kFloat32:
      return static_cast<double>(get(float{}));
    case DataType::kFloat64:
      return get(double{});
    case DataType::kInt32:
      return get(int32_t{});
    case DataType::kInt64:
      return static_cast<double>(get(int64_t{}));
    case DataType::kUint8:
      return get(uint8_t{});
    case DataType::kBFloat16: {
      const uint32_t bits = static_cast<uint32_t>(get(uint16_t{})) << 16;
      float value = 0;
      std::memcpy(&value, &bits, 4);
      return static_cast<double>(value);
    }
    case DataType::kFloat16:
      return static_cast<double>(half_to_float(get(uint16_t{})));
  }
  return 0;
}

double wrap(DataType type, double value) {
  if (type == DataType::kUint8) {
    return static_cast<double>(static_cast<uint8_t>(static_cast<int64_t>(value) & 0xff));
  }
  if (type == DataType::kInt32) {
    return static_cast<double>(static_cast<int32_t>(static_cast<int64_t>(value)));
  }
  return value;
}

}  // namespace

TypedArray random_array(DataType type, size_t count, std::mt19937_64& random) {
  TypedArray array;
  array.type = type;
  array.values.resize(count);
  array.bytes.resize(count * element_bytes(type));
  std::normal_distribution<double> normal;
  double magnitude = 1.0;
  for (size_t i = 0; i < count; ++i) {
    if (i % 64 == 0) magnitude = std::exp(normal(random));
    const double value =
        is_floating(type) ? normal(random) * magnitude : std::floor(normal(random) * 40.0);
    array.values[i] = store_value(type, value, array.bytes.data() + i * element_bytes(type));
  }
  return array;
}

std::vector<double> to_doubles(DataType type, const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / element_bytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_value(type, bytes.data() + i * element_bytes(type));
  }
  return values;
}

std::vector<double> exact_reduction(DataType type, ReduceOp op,
                                    const std::vector<TypedArray>& ranks) {
  std::vector<double> result = ranks[0].values;
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (size_t i = 0; i < result.size(); ++i) {
      const double value = ranks[r].values[i];
      if (op == ReduceOp::kMax) {
        result[i] = std::max(result[i], value);
      } else if (op == ReduceOp::kMin) {
        result[i] = std::min(result[i], value);
      } else {
        result[i] = wrap(type, result[i] + value);
      }
    }
  }
  if (op == ReduceOp::kAverage) {
    for (double& value : result) {
      value /= static_cast<double>(ranks.size());
      if (!is_floating(type)) value = std::trunc(value);
    }
  }
  return result;
}

std::string check_reduction(const Codec& codec, const Plan& plan, ReduceOp op,
                            const std::vector<TypedArray>& ranks,
                            const std::vector<std::byte>& result, size_t first, size_t part) {
  const DataType type = ranks[0].type;
  const std::vector<double> sums = exact_reduction(
      type, op == ReduceOp::kAverage && is_floating(type) ? ReduceOp::kSum : op, ranks);
  const double divisor =
      op == ReduceOp::kAverage && is_floating(type) ? static_cast<double>(ranks.size()) : 1.0;
  const std::vector<double> got = to_doubles(type, result);
  const PlanErrorTerms terms = plan_error_terms(plan);
  const size_t block = std::max<size_t>(codec.block(), 1);
  for (size_t begin = first; begin < first + got.size();) {
    size_t end = std::min((begin / block + 1) * block, first + got.size());
    if (part != 0) {
      const size_t part_begin = begin / part * part;
      end = std::min({part_begin + ((begin - part_begin) / block + 1) * block, part_begin + part,
                      first + got.size()});
    }
    double absmax = 0, sum_absmax = 0;
    for (size_t i = begin; i < end; ++i) {
      for (const TypedArray& rank : ranks) absmax = std::max(absmax, std::abs(rank.values[i]));
      sum_absmax = std::max(sum_absmax, std::abs(sums[i]));
    }
    const bool sums_values = op == ReduceOp::kSum || op == ReduceOp::kAverage;
    double bound =
        sums_values ? compose_error_bound(codec, terms, plan.size, absmax, sum_absmax) : 0;
    // The division rounds once more.
    bound = bound / divisor + (divisor > 1 ? sum_absmax * std::ldexp(1.0, -24) : 0);
    if (!is_floating(type)) bound = 0;
    for (size_t i = begin; i < end; ++i) {
      const double error = std::abs(got[i - first] - sums[i] / divisor);
      if (error <= bound) continue;
      return "element " + std::to_string(i) + ": got " + std::to_string(got[i - first]) +
             ", exact " + std::to_string(sums[i] / divisor) + ", error " + std::to_string(error) +
             " above the bound " + std::to_string(bound);
    }
    begin = end;
  }
  return "";
}

}  // namespace tersum::testing
