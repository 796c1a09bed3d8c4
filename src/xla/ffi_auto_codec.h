// The codec "auto:E" of rewritten operations: whichever is cheapest within the relative error E, by
// samples of each operation's own sums (runtime/sampled_calls.h); of "auto:E:LIST", whichever of
// the codecs that LIST names, with '|' between them.
//
// The error is part of the name, so that it travels in every place where a codec's name does: in
// what a program asks for, in compiled programs and in the key of the compilation cache.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device_world.h"
#include "tersum/status.h"
#include "xla/ffi_call_key.h"

namespace tersum::xla_ffi {

struct AllowedCodecs {
  double error = 0;
  std::string_view codec;  // "auto", or "auto:LIST" in canonical form; for ever
};

// What "auto:E" and "auto:E:LIST" allow; nothing for other names. kInvalidArgument: E is no finite
// number above 0, or LIST is none (runtime/tuning/auto_codecs.h).
Result<std::optional<AllowedCodecs>> allowed_codecs(std::string_view codec);

// What an operation's calls took last: one entry for each operand, and for each of the first
// iterations of a loop.
struct OperationChoice {
  OperationId operation;
  SiteChoice choice;
};

// Remembers which operation has the site; the number of sites that are kept is bounded.
void name_site(uint64_t site, const OperationId& operation);
// Those among `choices` whose site has a name.
[[nodiscard]] std::vector<OperationChoice> choices_of_operations(
    const std::vector<SiteChoice>& choices);

}  // namespace tersum::xla_ffi
