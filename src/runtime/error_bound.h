// How large the error of one element of a sum can be: the codec's bound, composed along a plan.
// Pure.
#pragma once

#include "codec/codec.h"
#include "plan/plan.h"

namespace tersum {

// `absmax`: the largest magnitude that any of the `ranks` ranks holds in the element's block;
// `sum_absmax`: that of the exact sum in the block. Derivation: docs/plans.md.
double compose_error_bound(const Codec& codec, const PlanErrorTerms& terms, int ranks,
                           double absmax, double sum_absmax);

}  // namespace tersum
