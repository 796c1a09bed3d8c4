// How often a value is quantized on its way: every reduce message and the final one carry a codec's
// error, and an error once made is carried along unchanged (sums do not amplify it).
#include <algorithm>

#include "base/check.h"
#include "plan/plan.h"

namespace tersum {
namespace {

struct ChunkTerms {
  uint32_t contributions = 0;
  uint32_t partials = 0;
  uint32_t finals = 0;
  int adder = -1;     // the rank that last added to this chunk
  uint32_t adds = 0;  // how many that rank has added
};

void count_step(int rank, const Step& step, ChunkTerms& terms) {
  switch (step.kind) {
    case StepKind::kReceiveAdd:
      terms.adds = terms.adder == rank ? terms.adds + 1 : 1;
      terms.adder = rank;
      break;
    case StepKind::kSendPartial:
      ++(terms.adder == rank ? terms.partials : terms.contributions);
      break;
    case StepKind::kSendFinal:
      terms.finals = 1;
      break;
    case StepKind::kFinish:
    case StepKind::kReceiveStore:
    case StepKind::kForward:
      break;
  }
}

}  // namespace

PlanErrorTerms plan_error_terms(const Plan& plan) {
  std::vector<ChunkTerms> chunks(plan.chunks.size());
  PlanErrorTerms worst;
  for (int rank = 0; rank < plan.size; ++rank) {
    const std::vector<Step>& steps = plan.steps[static_cast<size_t>(rank)];
    // Each rank touches some chunk, so an empty list means a plan made for another rank only.
    TERSUM_CHECK(chunks.empty() || !steps.empty());
    for (const Step& step : steps) {
      count_step(rank, step, chunks[step.chunk]);
      // Every rank sums up what it received and its own, all of it quantized.
      if (plan.replicated && step.kind == StepKind::kFinish) {
        worst.contributions = std::max(worst.contributions, chunks[step.chunk].adds + 1);
      }
    }
  }
  if (plan.replicated) return worst;
  for (const ChunkTerms& terms : chunks) {
    worst.contributions = std::max(worst.contributions, terms.contributions);
    worst.partials = std::max(worst.partials, terms.partials);
    worst.finals = std::max(worst.finals, terms.finals);
  }
  return worst;
}

}  // namespace tersum
