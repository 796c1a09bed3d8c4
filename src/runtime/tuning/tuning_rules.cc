#include "runtime/tuning/tuning_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "codec/codec.h"

namespace tersum {
namespace {

// Cuts the text before the first `separator` off the front of `text`.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return part;
}

bool parse_bytes(std::string_view text, size_t& bytes) {
  if (text == "inf") {
    bytes = std::numeric_limits<size_t>::max();
    return true;
  }
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (parsed.ec != std::errc()) return false;
  const std::string_view unit = text.substr(static_cast<size_t>(parsed.ptr - text.data()));
  constexpr std::string_view kUnits = "kmg";
  if (unit.empty()) return true;
  const size_t power = unit.size() == 1 ? kUnits.find(unit[0] | 0x20) : std::string_view::npos;
  if (power == std::string_view::npos || bytes >> (54 - 10 * power) != 0) return false;
  bytes <<= 10 * (power + 1);
  return true;
}

Result<TuningRule> parse_rule(std::string_view text) {
  const std::string quoted = "tuning rule '" + std::string(text) + "': ";
  TuningRule rule;
  const std::string_view collective = take_until(text, ':');
  std::string_view range = take_until(text, ':');
  // The last colon: a codec may have one of its own ("mxfp8:e4m3").
  const size_t end = std::min(text.rfind(':'), text.size());
  const std::string_view codec = text.substr(0, end);
  const std::string_view plan = text.substr(std::min(end + 1, text.size()));
  constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kReduceScatter,
                                       Collective::kAllGather, Collective::kBroadcast};
  bool known = false;
  for (const Collective candidate : kCollectives) {
    if (collective_name(candidate) != collective) continue;
    rule.collective = candidate;
    known = true;
  }
  if (!known) {
    return invalid_argument(quoted + "'" + std::string(collective) +
                            "' is no collective; write all_reduce, reduce_scatter, all_gather or "
                            "broadcast");
  }
  const std::string shown(range);
  const std::string_view begin = take_until(range, '-');
  if (!parse_bytes(begin, rule.bytes_begin) || !parse_bytes(range, rule.bytes_end) ||
      rule.bytes_begin >= rule.bytes_end) {
    return invalid_argument(quoted + "'" + shown +
                            "' is no range of bytes; write one such as 0-64k or 64k-inf");
  }
  if (codec != "*") {
    Result<const Codec*> found = find_codec(codec, DataType::kFloat32, ReduceOp::kSum);
    if (!found.ok()) return invalid_argument(quoted + std::string(found.status().message()));
    rule.codec = codec;
  }
  const auto kind = plan == "*" ? PlanKind::kAuto : parse_plan_kind(plan);
  if (!kind) {
    return invalid_argument(quoted + "'" + std::string(plan) +
                            "' is no plan; write one such as two_step, or * to leave it open");
  }
  rule.plan = *kind;
  return rule;
}

}  // namespace

Result<std::vector<TuningRule>> parse_tuning_rules(std::string_view text) {
  std::vector<TuningRule> rules;
  while (!text.empty()) {
    Result<TuningRule> rule = parse_rule(take_until(text, ','));
    if (!rule.ok()) return rule.status();
    rules.push_back(std::move(rule).value());
  }
  return rules;
}

const TuningRule* find_rule(const std::vector<TuningRule>& rules, Collective collective,
                            size_t bytes) {
  for (const TuningRule& rule : rules) {
    if (rule.collective == collective && bytes >= rule.bytes_begin && bytes < rule.bytes_end) {
      return &rule;
    }
  }
  return nullptr;
}

}  // namespace tersum
