// The verifier: proves a plan by walking it symbolically, chunk by chunk, then as a whole.
//
// First the layout (plan_layout.h). Per chunk: (1) each rank's steps obey the grammar of plan.h and
// leave the rank with what its collective asks for; (2) sends and receives pair up one to one; (3)
// sets of contributors are carried along the reduce messages: a union that is not disjoint counts
// somebody twice, an incomplete one at the owner somebody not at all, a rank that is never reached
// lies on a cycle; (4) the gather messages reach everybody from the owner. As a whole: the ranks'
// lists, run in order, come to their end.
#include <algorithm>
#include <ranges>
#include <string>
#include <tuple>
#include <utility>

#include "plan/collective_rules.h"
#include "plan/plan.h"
#include "plan/plan_layout.h"

namespace tersum {
namespace {

std::string_view step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::kReceiveAdd:
      return "receive_add";
    case StepKind::kSendPartial:
      return "send_partial";
    case StepKind::kFinish:
      return "finish";
    case StepKind::kSendFinal:
      return "send_final";
    case StepKind::kReceiveStore:
      return "receive_store";
    case StepKind::kForward:
      return "forward";
  }
  return "unknown step";
}

bool is_receive(StepKind kind) {
  return kind == StepKind::kReceiveAdd || kind == StepKind::kReceiveStore;
}
bool is_reduce(StepKind kind) {
  return kind == StepKind::kReceiveAdd || kind == StepKind::kSendPartial;
}

// Where a step stands: rank and index in that rank's list.
struct StepAt {
  int rank = 0;
  uint32_t index = 0;
};

// One end of a message of one chunk.
struct End {
  bool gather = false;
  int from = 0;
  int to = 0;
  StepAt at;
  [[nodiscard]] std::tuple<bool, int, int> key() const { return {gather, from, to}; }
};

// What a rank has done with the chunk that is being walked.
enum class Stage : uint8_t { kFresh, kSentPartial, kFinished, kStored };

struct RankWalk {
  Stage stage = Stage::kFresh;
  int last_added_peer = -1;
  uint32_t adds = 0;
  uint32_t partials = 0;
  uint32_t forwards = 0;
};

class Verifier {
 public:
  explicit Verifier(const Plan& plan)
      : plan_(plan), size_(static_cast<size_t>(std::max(plan.size, 0))) {}

  Status run() {
    TERSUM_RETURN_IF_ERROR(check_plan_layout(plan_));
    TERSUM_RETURN_IF_ERROR(group_by_chunk());
    for (uint32_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) {
      chunk_ = chunk;
      TERSUM_RETURN_IF_ERROR(walk_steps());
      TERSUM_RETURN_IF_ERROR(check_outcome());
      TERSUM_RETURN_IF_ERROR(match_messages());
      TERSUM_RETURN_IF_ERROR(carry_contributions());
      TERSUM_RETURN_IF_ERROR(reach_everybody());
    }
    return check_causal_order();
  }

 private:
  Status group_by_chunk();
  Status walk_steps();
  Status walk_step(const StepAt& at, RankWalk& walk);
  Status check_outcome();
  Status match_messages();
  Status carry_contributions();
  Status carry_replicated();
  Status merge(int from, int to);
  Status reach_everybody();
  Status check_causal_order();

  [[nodiscard]] bool reduces() const { return tersum::reduces(plan_.collective); }
  // What the collective says of the part that chunk_ belongs to.
  [[nodiscard]] PartRule rule() const {
    return part_rule(plan_.collective, plan_.size, plan_.root, chunk_ / plan_.splits);
  }
  [[nodiscard]] const Step& step(const StepAt& at) const {
    return plan_.steps[static_cast<size_t>(at.rank)][at.index];
  }
  [[nodiscard]] uint64_t* contributors(int rank) {
    return contributors_.data() + static_cast<size_t>(rank) * words();
  }
  [[nodiscard]] size_t words() const { return (size_ + 63) / 64; }

  // The matched messages of chunk_ in one phase that `from` sends.
  [[nodiscard]] auto messages_from(bool gather, int from) const {
    return std::ranges::equal_range(sends_, std::pair{gather, from}, {},
                                    [](const End& end) { return std::pair{end.gather, end.from}; });
  }

  [[nodiscard]] Status breach(const std::string& text) const { return plan_breach(plan_, text); }
  [[nodiscard]] Status breach_of_chunk(const std::string& text) const {
    return breach("chunk " + std::to_string(chunk_) + ": " + text);
  }
  [[nodiscard]] Status breach_at(const StepAt& at, const std::string& text) const {
    const Step& s = step(at);
    std::string where = "rank " + std::to_string(at.rank) + ", step " + std::to_string(at.index) +
                        " (" + std::string(step_kind_name(s.kind)) + " of chunk " +
                        std::to_string(s.chunk);
    if (s.peer >= 0) where += ", peer " + std::to_string(s.peer);
    return breach(where + "): " + text);
  }

  const Plan& plan_;
  const size_t size_;
  uint32_t chunk_ = 0;
  int owner_ = -1;  // of chunk_; -1 in replicated plans
  std::vector<std::vector<StepAt>> by_chunk_;
  std::vector<RankWalk> walks_;
  std::vector<End> sends_;     // of chunk_, sorted once matched
  std::vector<End> receives_;  // of chunk_, sorted once matched: receives_[i] pairs sends_[i]
  std::vector<uint64_t> contributors_;
  // matches_[rank][index]: the index of the send that a receive waits for, in the sender's list.
  std::vector<std::vector<uint32_t>> matches_;
};

Status Verifier::group_by_chunk() {
  by_chunk_.resize(plan_.chunks.size());
  matches_.resize(size_);
  for (int rank = 0; rank < plan_.size; ++rank) {
    const std::vector<Step>& steps = plan_.steps[static_cast<size_t>(rank)];
    matches_[static_cast<size_t>(rank)].resize(steps.size());
    for (uint32_t index = 0; index < steps.size(); ++index) {
      const StepAt at{rank, index};
      const Step& s = steps[index];
      if (s.chunk >= plan_.chunks.size()) return breach_at(at, "there is no such chunk");
      if (s.kind == StepKind::kFinish) {
        if (s.peer != -1) return breach_at(at, "a finish has no peer");
      } else if (s.peer < 0 || s.peer >= plan_.size || s.peer == rank) {
        return breach_at(at, "the peer must be another rank of the group");
      } else if (plan_.topology != nullptr && !plan_.topology->adjacent(rank, s.peer)) {
        return breach_at(at, "topology " + plan_.topology->name + " has no link to the peer");
      }
      by_chunk_[s.chunk].push_back(at);
    }
  }
  return ok_status();
}

// (1) The grammar, and collects both ends of the chunk's messages.
Status Verifier::walk_steps() {
  walks_.assign(size_, {});
  sends_.clear();
  receives_.clear();
  owner_ = -1;
  for (const StepAt& at : by_chunk_[chunk_]) {
    const Step& s = step(at);
    TERSUM_RETURN_IF_ERROR(walk_step(at, walks_[static_cast<size_t>(at.rank)]));
    if (s.kind == StepKind::kFinish) continue;
    const bool gather = !is_reduce(s.kind);
    if (is_receive(s.kind)) {
      receives_.push_back({gather, s.peer, at.rank, at});
    } else {
      sends_.push_back({gather, at.rank, s.peer, at});
    }
  }
  return ok_status();
}

Status Verifier::walk_step(const StepAt& at, RankWalk& walk) {
  const Step& s = step(at);
  switch (s.kind) {
    case StepKind::kReceiveAdd:
      if (walk.stage != Stage::kFresh)
        return breach_at(at, "too late to add to what was passed on");
      if (s.peer <= walk.last_added_peer) return breach_at(at, "receive_adds not in rank order");
      walk.last_added_peer = s.peer;
      ++walk.adds;
      return ok_status();
    case StepKind::kSendPartial:
      if (plan_.replicated && walk.adds > 0) {
        return breach_at(at, "a replicated plan sends the rank's own contribution only");
      }
      // A second partial is caught where it matters: it counts a contribution twice.
      if (walk.stage != Stage::kFresh && walk.stage != Stage::kSentPartial) {
        return breach_at(at, "the chunk was already finished or stored");
      }
      ++walk.partials;
      if (!plan_.replicated) walk.stage = Stage::kSentPartial;
      return ok_status();
    case StepKind::kFinish:
      if (walk.stage != Stage::kFresh) return breach_at(at, "the chunk was already passed on");
      if (!plan_.replicated && owner_ >= 0) {
        return breach_at(at, "rank " + std::to_string(owner_) + " owns this chunk already");
      }
      walk.stage = Stage::kFinished;
      if (!plan_.replicated) owner_ = at.rank;
      return ok_status();
    case StepKind::kSendFinal:
      if (walk.stage != Stage::kFinished) return breach_at(at, "nothing is finished here");
      return ok_status();
    case StepKind::kReceiveStore:
      if (walk.stage == Stage::kFinished) return breach_at(at, "this rank finished the chunk");
      if (walk.stage == Stage::kStored) return breach_at(at, "the chunk was already stored");
      walk.stage = Stage::kStored;
      return ok_status();
    case StepKind::kForward:
      if (walk.stage != Stage::kStored) return breach_at(at, "nothing is stored here yet");
      ++walk.forwards;
      return ok_status();
  }
  return breach_at(at, "no such kind of step");
}

// Every rank ends with what its collective asks for, having given what it must.
Status Verifier::check_outcome() {
  if (!plan_.replicated && owner_ < 0) return breach_of_chunk("no rank finishes it");
  const PartRule due = rule();
  if (due.owner != kAnyRank && owner_ != due.owner) {
    const std::string name = "rank " + std::to_string(owner_);
    return breach_of_chunk(due.owner == plan_.root && has_root(plan_.collective)
                               ? name + " is not the root"
                               : name + " finishes another rank's part");
  }
  for (int rank = 0; rank < plan_.size; ++rank) {
    const RankWalk& walk = walks_[static_cast<size_t>(rank)];
    const std::string name = "rank " + std::to_string(rank);
    if (!reduces() && (walk.adds > 0 || walk.partials > 0)) {
      return breach_of_chunk(name + " adds where nothing is to be reduced");
    }
    if (plan_.replicated) {
      if (walk.stage != Stage::kFinished) return breach_of_chunk(name + " does not finish it");
      continue;
    }
    if (rank == owner_) continue;
    if (due.ends_with(rank) && walk.stage != Stage::kStored) {
      return breach_of_chunk(name + " does not end with it");
    }
    if (!due.ends_with(rank) && walk.stage == Stage::kStored && walk.forwards == 0) {
      return breach_of_chunk(name + " stores what it has no room for");
    }
  }
  return ok_status();
}

// (2) Pairs sends with receives; a phase, sender and receiver name a message of a chunk.
Status Verifier::match_messages() {
  const auto by_key = [](const End& a, const End& b) { return a.key() < b.key(); };
  std::sort(sends_.begin(), sends_.end(), by_key);
  std::sort(receives_.begin(), receives_.end(), by_key);
  for (size_t i = 0; i < std::max(sends_.size(), receives_.size()); ++i) {
    const bool have_send = i < sends_.size();
    const bool have_receive = i < receives_.size();
    if (have_send && i > 0 && sends_[i].key() == sends_[i - 1].key()) {
      return breach_at(sends_[i].at, "sent twice");
    }
    if (!have_receive || (have_send && sends_[i].key() < receives_[i].key())) {
      return breach_at(sends_[i].at, "the peer does not receive it");
    }
    if (!have_send || receives_[i].key() < sends_[i].key()) {
      return breach_at(receives_[i].at, "the peer does not send it");
    }
    const StepAt& at = receives_[i].at;
    matches_[static_cast<size_t>(at.rank)][at.index] = sends_[i].at.index;
  }
  return ok_status();
}

// Adds the contributors that `from` holds to those of `to`.
Status Verifier::merge(int from, int to) {
  const uint64_t* source = contributors(from);
  uint64_t* target = contributors(to);
  for (size_t word = 0; word < words(); ++word) {
    if ((source[word] & target[word]) != 0) {
      return breach_of_chunk("rank " + std::to_string(to) + " counts a contribution twice with " +
                             "what rank " + std::to_string(from) + " sends");
    }
    target[word] |= source[word];
  }
  return ok_status();
}

// (3) Carries the sets from the leaves to the owner: a rank passes its own on when all that it
// waits for has come.
Status Verifier::carry_contributions() {
  if (!reduces()) return ok_status();
  if (plan_.replicated) return carry_replicated();
  contributors_.assign(size_ * words(), 0);
  std::vector<uint32_t> waiting(size_);
  std::vector<int> ready;
  for (int rank = 0; rank < plan_.size; ++rank) {
    contributors(rank)[rank / 64] |= uint64_t{1} << (rank % 64);
    waiting[static_cast<size_t>(rank)] = walks_[static_cast<size_t>(rank)].adds;
    if (waiting[static_cast<size_t>(rank)] == 0) ready.push_back(rank);
  }
  while (!ready.empty()) {
    const int from = ready.back();
    ready.pop_back();
    for (const End& message : messages_from(false, from)) {
      TERSUM_RETURN_IF_ERROR(merge(from, message.to));
      if (--waiting[static_cast<size_t>(message.to)] == 0) ready.push_back(message.to);
    }
  }
  for (int rank = 0; rank < plan_.size; ++rank) {
    if (waiting[static_cast<size_t>(rank)] != 0) {
      return breach_of_chunk("rank " + std::to_string(rank) + " waits on a cycle");
    }
    if ((contributors(owner_)[rank / 64] >> (rank % 64) & 1) == 0) {
      return breach_of_chunk("the contribution of rank " + std::to_string(rank) +
                             " does not reach its owner, rank " + std::to_string(owner_));
    }
  }
  return ok_status();
}

// Each message carries its sender's contribution alone, and match_messages has seen to it that none
// comes twice: counting them is enough.
Status Verifier::carry_replicated() {
  for (int rank = 0; rank < plan_.size; ++rank) {
    if (walks_[static_cast<size_t>(rank)].adds + 1 != size_) {
      return breach_of_chunk("rank " + std::to_string(rank) + " does not get every contribution");
    }
  }
  return ok_status();
}

// (4) Every rank that ends with the chunk, but for the owner, stores once, so each has one gather
// message coming in; if all are reached from the owner, they form a tree. Nobody else stores, but
// for those who hand it on.
Status Verifier::reach_everybody() {
  if (plan_.replicated) return ok_status();
  std::vector<char> reached(size_, 0);
  std::vector<int> pending{owner_};
  reached[static_cast<size_t>(owner_)] = 1;
  while (!pending.empty()) {
    const int from = pending.back();
    pending.pop_back();
    for (const End& message : messages_from(true, from)) {
      reached[static_cast<size_t>(message.to)] = 1;
      pending.push_back(message.to);
    }
  }
  for (int rank = 0; rank < plan_.size; ++rank) {
    if (rule().ends_with(rank) && reached[static_cast<size_t>(rank)] == 0) {
      return breach_of_chunk("rank " + std::to_string(rank) + " is not reached from its owner");
    }
  }
  return ok_status();
}

// Runs all lists in order; a rank whose receive is not yet sent sleeps until its peer has moved.
Status Verifier::check_causal_order() {
  std::vector<uint32_t> next(size_, 0);
  std::vector<std::vector<int>> sleepers(size_);
  std::vector<int> runnable;
  for (int rank = plan_.size - 1; rank >= 0; --rank) runnable.push_back(rank);
  while (!runnable.empty()) {
    const int rank = runnable.back();
    const auto self = static_cast<size_t>(rank);
    runnable.pop_back();
    const std::vector<Step>& steps = plan_.steps[self];
    const uint32_t before = next[self];
    for (; next[self] < steps.size(); ++next[self]) {
      const Step& s = steps[next[self]];
      if (!is_receive(s.kind)) continue;
      const auto peer = static_cast<size_t>(s.peer);
      if (next[peer] > matches_[self][next[self]]) continue;
      sleepers[peer].push_back(rank);
      break;
    }
    if (next[self] == before) continue;
    runnable.insert(runnable.end(), sleepers[self].begin(), sleepers[self].end());
    sleepers[self].clear();
  }
  for (int rank = 0; rank < plan_.size; ++rank) {
    const uint32_t index = next[static_cast<size_t>(rank)];
    if (index < plan_.steps[static_cast<size_t>(rank)].size()) {
      return breach_at({rank, index}, "run in order, the ranks wait for each other here");
    }
  }
  return ok_status();
}

}  // namespace

Status verify_plan(const Plan& plan) { return Verifier(plan).run(); }

}  // namespace tersum
