// Whether a codec keeps within a call's max_rel_error on a plan.
//
// Thread safety: pure functions. Invariant: the same answers on all ranks, for they depend on the
// topology and on the call alone.
#pragma once

#include <string>

#include "runtime/tuning/path_choice.h"

namespace tersum {

// Two digits of an error, for people.
std::string error_text(double error);

// kInvalidArgument: max_rel_error is negative, or no number.
Status check_limit(const CallOptions& options);

// Why the named codec may not be taken on the named plan (kAuto: the rule of thumb's, whatever a
// tuning rule says), as "codec int4/128 may be wrong by 0.14 here, above max_rel_error 0.01". Empty
// where it keeps within, or the call promises nothing.
Result<std::string> excess_error(const PathContext& context, const CallArguments& arguments,
                                 const CallOptions& options);

// kInvalidArgument: there is such a reason, and what to do about it.
Status check_error(const PathContext& context, const CallArguments& arguments,
                   const CallOptions& options);

}  // namespace tersum
