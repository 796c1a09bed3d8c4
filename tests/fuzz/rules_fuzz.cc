// Any text as tuning rules (TERSUM_TUNE) and as a link's rate: refused with a reason, or what was
// read is something that a call can use.
#include <cmath>
#include <string>

#include "base/check.h"
#include "codec/codec.h"
#include "fuzz_input.h"
#include "plan/topology.h"
#include "runtime/tuning/tuning_rules.h"

namespace tersum {
namespace {

void fuzz_rules(std::string_view text) {
  const auto rules = parse_tuning_rules(text);
  if (!rules.ok()) {
    TERSUM_CHECK(rules.status().code() == StatusCode::kInvalidArgument);
    TERSUM_CHECK(!rules.status().message().empty());
    return;
  }
  for (const TuningRule& rule : rules.value()) {
    TERSUM_CHECK(rule.bytes_begin < rule.bytes_end);
    TERSUM_CHECK(rule.codec.empty() || parse_codec_spec(rule.codec).ok());
    TERSUM_CHECK(find_rule(rules.value(), rule.collective, rule.bytes_begin) != nullptr);
  }
}

void fuzz_rate(std::string_view text) {
  const Result<double> rate = parse_rate(text);
  TERSUM_CHECK(!rate.ok() || (rate.value() > 0 && std::isfinite(rate.value())));
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tersum::FuzzInput input(data, size);
  tersum::fuzz_rules(input.text());
  tersum::fuzz_rate(input.text());
  return 0;
}
