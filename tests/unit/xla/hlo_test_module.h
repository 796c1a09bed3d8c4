// What the tests of the HLO pass share: golden modules, and a reader of protobuf fields that owes
// nothing to the pass's own.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "xla/hlo_pass.h"

namespace tersum::hlo_test {

// One field of a message: `raw` with its tag, `value` without (varints: their bytes).
struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  std::string raw;
  std::string value;
  friend bool operator==(const Field&, const Field&) = default;
};

// All fields of a well-formed message in order; fails the test on a malformed one.
std::vector<Field> split(std::string_view message);
// The first field `number`, "" when there is none.
std::string value_of(std::string_view message, uint32_t number);
// A varint's value.
int64_t number_of(std::string_view value);

// A module's instructions: [computation][instruction], whole messages.
std::vector<std::vector<std::string>> instructions_of(std::string_view module);

// "psum_f32.pb" of tests/golden/hlo/FOLDER; fails the test when there is none.
std::string golden(const std::string& folder, const std::string& name);
// All module names (without ".pb") of the folder, sorted.
std::vector<std::string> golden_names(const std::string& folder);
inline const std::string kJaxFolder = "jax-0.10.2";
inline const std::string kHandmadeFolder = "handmade";

// Options under which every module that can be rewritten is: no threshold, no locality, a canonical
// form for the specs that the tests use.
HloPassOptions all_options();

// The attributes of a rewritten instruction.
struct Call {
  std::string target;
  std::vector<int64_t> groups;
  std::map<std::string, std::string> attributes;  // all, as text
};

// The rewritten instruction called `name`; fails the test when it is not a custom call of ours.
Call call_of(std::string_view module, const std::string& name);

// Fails the test unless `after` is `before` with exactly the instructions `rewritten` (by name)
// turned into custom calls of API version 4, their other fields and everything else byte for byte
// the same.
void expect_only_rewritten(std::string_view before, std::string_view after,
                           const std::set<std::string>& rewritten);

// Runs the pass, which must succeed, and checks everything that holds for any module: the rows, the
// bytes outside the rewritten instructions, and that a second pass finds nothing to do.
HloPassOutput run_checked(const std::string& module, const HloPassOptions& options);

}  // namespace tersum::hlo_test
