// Any bytes as a serialized HLO module: an error, or a module that differs in the opcodes of what
// was rewritten and can be read again.
#include <string>

#include "base/check.h"
#include "fuzz_input.h"
#include "xla/hlo_pass.h"
#include "xla/hlo_proto.h"

namespace tersum {
namespace {

HloPassOptions fuzz_options() {
  HloPassOptions options;
  options.min_bytes = 0;
  options.codec = "exact";  // with the proofs
  options.canonical_codec = [](std::string_view spec) -> Result<std::string> {
    if (spec == "exact" || spec == "int4/32") return std::string(spec);
    return invalid_argument("no codec '" + std::string(spec) + "'");
  };
  return options;
}

void check_rewritten(const HloComputation& before, const HloComputation& after) {
  TERSUM_CHECK(before.instructions.size() == after.instructions.size());
  for (size_t i = 0; i < before.instructions.size(); ++i) {
    const HloInstruction& was = before.instructions[i];
    const HloInstruction& is = after.instructions[i];
    TERSUM_CHECK(was.id == is.id && was.operand_ids == is.operand_ids);
    TERSUM_CHECK(was.opcode != is.opcode || was.bytes == is.bytes);
  }
}

void fuzz_module(std::string_view module) {
  const auto result = run_hlo_pass(module, fuzz_options());
  if (!result.ok()) {
    TERSUM_CHECK(result.status().code() == StatusCode::kInvalidArgument);
    return;
  }
  if (!result.value().changed) {
    TERSUM_CHECK(result.value().module.empty());
    return;
  }
  const auto before = parse_hlo_module(module);
  const auto after = parse_hlo_module(result.value().module);
  TERSUM_CHECK(before.ok() && after.ok());
  TERSUM_CHECK(before.value().computations.size() == after.value().computations.size());
  for (size_t c = 0; c < before.value().computations.size(); ++c) {
    check_rewritten(before.value().computations[c], after.value().computations[c]);
  }
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tersum::fuzz_module(tersum::FuzzInput(data, size).text());
  return 0;
}
