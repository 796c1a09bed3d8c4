// An executor of plans over symbols instead of numbers, written from plan.h alone and sharing
// nothing with the verifier: what each rank ends with, who is in it, and how often it was
// quantized.
//
// Thread safety: none needed. Invariant: ranks run their lists strictly in order; which rank moves
// next is drawn at random, so nothing may depend on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "plan/plan.h"

namespace tersum::testing {

// How often each rank's contribution is in a value, and how often it was quantized on its way.
struct Symbol {
  std::vector<int> contributors;
  PlanErrorTerms errors;
  bool is_sum = false;
};

struct WalkResult {
  // Empty, or why the walk came to a stop (every rank waiting, or a step that makes no sense).
  std::string failure;
  // [rank][chunk]: what the rank ends with; empty where it ends with nothing.
  std::vector<std::vector<std::optional<Symbol>>> values;
  size_t messages_left = 0;  // sent and never received
  // Chunk elements that each rank sent, summed over its messages.
  std::vector<size_t> sent_elements;
};

class PlanWalker {
 public:
  PlanWalker(const Plan& plan, uint64_t seed) : plan_(plan), random_(seed) {}

  WalkResult walk() {
    const auto size = static_cast<size_t>(plan_.size);
    result_.values.assign(size, std::vector<std::optional<Symbol>>(plan_.chunks.size()));
    result_.sent_elements.assign(size, 0);
    partial_.assign(size, std::vector<std::optional<Symbol>>(plan_.chunks.size()));
    next_.assign(size, 0);
    std::vector<int> runnable;
    while (result_.failure.empty()) {
      runnable.clear();
      for (int rank = 0; rank < plan_.size; ++rank) {
        if (can_run(rank)) runnable.push_back(rank);
      }
      if (runnable.empty()) break;
      const int rank = runnable[random_() % runnable.size()];
      // A few steps at a time, or large plans would spend their time on drawing lots.
      for (uint64_t steps = 1 + random_() % 8; steps > 0 && can_run(rank); --steps) run_step(rank);
    }
    for (int rank = 0; rank < plan_.size && result_.failure.empty(); ++rank) {
      if (next_[rank] < plan_.steps[rank].size()) fail("rank " + std::to_string(rank) + " waits");
    }
    result_.messages_left = messages_.size();
    return std::move(result_);
  }

 private:
  using Key = std::tuple<int, int, uint32_t, bool>;  // from, to, chunk, gather

  static bool is_receive(StepKind kind) {
    return kind == StepKind::kReceiveAdd || kind == StepKind::kReceiveStore;
  }
  void fail(std::string why) { result_.failure = std::move(why); }

  bool can_run(int rank) const {
    if (next_[rank] >= plan_.steps[rank].size() || !result_.failure.empty()) return false;
    const Step& step = plan_.steps[rank][next_[rank]];
    if (!is_receive(step.kind)) return true;
    const bool gather = step.kind == StepKind::kReceiveStore;
    return messages_.contains({step.peer, rank, step.chunk, gather});
  }

  Symbol own(int rank) const {
    Symbol symbol;
    symbol.contributors.assign(static_cast<size_t>(plan_.size), 0);
    symbol.contributors[static_cast<size_t>(rank)] = 1;
    return symbol;
  }

  static void add(Symbol& to, const Symbol& other) {
    for (size_t i = 0; i < to.contributors.size(); ++i) to.contributors[i] += other.contributors[i];
    to.errors.contributions += other.errors.contributions;
    to.errors.partials += other.errors.partials;
    to.errors.finals += other.errors.finals;
    to.is_sum = true;
  }

  static Symbol quantized(Symbol symbol) {
    ++(symbol.is_sum ? symbol.errors.partials : symbol.errors.contributions);
    return symbol;
  }

  void send(int rank, const Step& step, bool gather, Symbol symbol) {
    const ChunkRange& range = plan_.chunks[step.chunk];
    result_.sent_elements[static_cast<size_t>(rank)] += range.end - range.begin;
    const bool is_new =
        messages_.emplace(Key{rank, step.peer, step.chunk, gather}, std::move(symbol)).second;
    if (!is_new) fail("a message was sent twice");
  }

  Symbol receive(int rank, const Step& step, bool gather) {
    const auto found = messages_.find({step.peer, rank, step.chunk, gather});
    Symbol symbol = std::move(found->second);
    messages_.erase(found);
    return symbol;
  }

  void run_step(int rank) {
    const Step& step = plan_.steps[rank][next_[rank]++];
    std::optional<Symbol>& value = result_.values[rank][step.chunk];
    std::optional<Symbol>& partial = partial_[rank][step.chunk];
    if (!partial.has_value()) partial = own(rank);
    switch (step.kind) {
      case StepKind::kReceiveAdd:
        return add(*partial, receive(rank, step, false));
      case StepKind::kSendPartial:
        return send(rank, step, false, quantized(*partial));
      case StepKind::kFinish:
        return finish(rank, step);
      case StepKind::kReceiveStore:
        value = receive(rank, step, true);
        return;
      case StepKind::kSendFinal:
      case StepKind::kForward:
        if (!value.has_value()) return fail("nothing to send");
        return send(rank, step, true, *value);
    }
  }

  // The owner takes the decoding of what it sends, so its own value carries that error as well.
  void finish(int rank, const Step& step) {
    Symbol symbol = *partial_[rank][step.chunk];
    if (plan_.replicated) ++symbol.errors.contributions;  // its own, encoded
    for (const Step& later : plan_.steps[rank]) {
      if (later.kind == StepKind::kSendFinal && later.chunk == step.chunk) symbol.errors.finals = 1;
    }
    result_.values[rank][step.chunk] = std::move(symbol);
  }

  const Plan& plan_;
  std::mt19937_64 random_;
  WalkResult result_;
  std::vector<std::vector<std::optional<Symbol>>> partial_;
  std::vector<size_t> next_;
  std::map<Key, Symbol> messages_;
};

// What a collective promises of one chunk, said once more: whose value it is, and who ends with it.
struct Promise {
  bool reduces = false;
  size_t source = 0;
  std::vector<char> wanted;  // by rank
};

inline Promise promise_of(const Plan& plan, size_t chunk) {
  const auto size = static_cast<size_t>(plan.size);
  const auto root = static_cast<size_t>(plan.root);
  const size_t part = size == 1 ? 0 : chunk / plan.splits;
  Promise promise;
  promise.wanted.assign(size, 0);
  switch (plan.collective) {
    case Collective::kAllReduce:
      promise.reduces = true;
      promise.wanted.assign(size, 1);
      break;
    case Collective::kReduceScatter:
      promise.reduces = true;
      promise.wanted[part] = 1;
      break;
    case Collective::kAllGather:
      promise.source = part;
      promise.wanted.assign(size, 1);
      break;
    case Collective::kBroadcast:
      promise.source = root;
      promise.wanted.assign(size, 1);
      break;
    case Collective::kAllToAll:
      promise.source = part / size;
      promise.wanted[part % size] = 1;
      break;
    case Collective::kGather:
      promise.source = part;
      promise.wanted[root] = 1;
      break;
    case Collective::kScatter:
      promise.source = root;
      promise.wanted[part] = 1;
      break;
    case Collective::kBarrier:
      break;
  }
  return promise;
}

// Whether a rank hands the chunk on to others as it came.
inline bool hands_on(const Plan& plan, size_t rank, size_t chunk) {
  for (const Step& step : plan.steps[rank]) {
    if (step.kind == StepKind::kForward && step.chunk == chunk) return true;
  }
  return false;
}

// Empty when the walk gave every rank what the collective promises it, else what is wrong. Who
// gives a value away, or hands it on, keeps it in the plan's terms, wanted or not.
inline std::string wrong_in(const Plan& plan, const WalkResult& result) {
  if (!result.failure.empty()) return result.failure;
  if (result.messages_left > 0) return std::to_string(result.messages_left) + " messages left";
  for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    const Promise promise = promise_of(plan, chunk);
    for (size_t rank = 0; rank < static_cast<size_t>(plan.size); ++rank) {
      const auto& value = result.values[rank][chunk];
      const bool has_given = !promise.reduces && rank == promise.source;
      const bool wants = promise.wanted[rank] != 0 || has_given ||
                         (value.has_value() && hands_on(plan, rank, chunk));
      if (wants != value.has_value()) return "a rank ends with too much or too little";
      if (!wants) continue;
      for (size_t from = 0; from < static_cast<size_t>(plan.size); ++from) {
        const int expected = promise.reduces || from == promise.source ? 1 : 0;
        if (value->contributors[from] != expected) return "a contribution counts wrongly";
      }
    }
  }
  return {};
}

}  // namespace tersum::testing
