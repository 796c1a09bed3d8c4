// Tuning rules: what a user has decided for ranges of sizes, against what tersum would choose.
//
//   rules = rule *( "," rule )
//   rule  = collective ":" range ":" codec ":" plan      "*" leaves codec or plan to tersum
//   range = bytes "-" bytes                              "0-64k", "64k-inf"; the end is excluded
//
// as in "all_reduce:0-64k:exact:one_shot,all_reduce:64k-inf:int8/128:*". The first rule that fits
// a call holds. Rules fill in what the call leaves open ("auto"); a codec or plan that a call names
// stands.
//
// Thread safety: values; pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

struct TuningRule {
  Collective collective = Collective::kAllReduce;
  size_t bytes_begin = 0;
  size_t bytes_end = 0;
  std::string codec;                // empty: left open
  PlanKind plan = PlanKind::kAuto;  // kAuto: left open
};

// kInvalidArgument names the rule and the part of it that is wrong. Empty text: no rules.
Result<std::vector<TuningRule>> parse_tuning_rules(std::string_view text);

// The first rule for a call over an array of `bytes`, or null.
const TuningRule* find_rule(const std::vector<TuningRule>& rules, Collective collective,
                            size_t bytes);

}  // namespace tersum
