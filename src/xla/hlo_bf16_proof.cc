#include "xla/hlo_bf16_proof.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace tersum {
namespace {

// Real proofs take a handful of steps for each operand. The limits keep the pass linear on any
// module; a combined sum's tuple has a use per operand, of which XLA:CPU combines at most 256.
constexpr int kStepsMax = 256;
constexpr int kUsesMax = 1 << 14;

// The value itself, where an instruction has one; otherwise the number of a tuple's element.
constexpr int64_t kWhole = -1;

// An instruction's result, or one element of it.
using Value = std::pair<HloNode, int64_t>;

// Values still to be shown, each only once.
class Worklist {
 public:
  void add(HloNode node, int64_t element) {
    if (seen_.insert({node, element}).second) pending_.push_back({node, element});
  }
  // False when all are done, or `exhausted`.
  bool take(Value& out) {
    if (pending_.empty()) return false;
    if (++steps_ > kStepsMax) {
      exhausted_ = true;
      return false;
    }
    out = pending_.back();
    pending_.pop_back();
    return true;
  }
  [[nodiscard]] bool exhausted() const { return exhausted_; }

 private:
  std::set<Value> seen_;
  std::vector<Value> pending_;
  int steps_ = 0;
  bool exhausted_ = false;
};

// Which operands' elements make up the result, unchanged.
enum class Moves { kNot, kFirst, kFirstTwo, kLastTwo, kAll };

struct Mover {
  std::string_view opcode;
  Moves moves;
};

// The first operand of a slice or gather holds the data, the others say where; a select's first
// says which of the other two; pad and dynamic-update-slice mix two arrays.
constexpr Mover kMovers[] = {
    {"bitcast", Moves::kFirst},       {"broadcast", Moves::kFirst},
    {"concatenate", Moves::kAll},     {"copy", Moves::kFirst},
    {"dynamic-slice", Moves::kFirst}, {"dynamic-update-slice", Moves::kFirstTwo},
    {"gather", Moves::kFirst},        {"pad", Moves::kFirstTwo},
    {"reshape", Moves::kFirst},       {"reverse", Moves::kFirst},
    {"select", Moves::kLastTwo},      {"slice", Moves::kFirst},
    {"transpose", Moves::kFirst},
};

Moves moves_of(const HloInstruction& instruction) {
  if (instruction.element_type != kHloF32) return Moves::kNot;
  const auto* it = std::find_if(std::begin(kMovers), std::end(kMovers), [&](const Mover& mover) {
    return mover.opcode == instruction.opcode;
  });
  return it == std::end(kMovers) ? Moves::kNot : it->moves;
}

bool moves_operand(Moves moves, size_t operand, size_t operand_count) {
  switch (moves) {
    case Moves::kNot:
      return false;
    case Moves::kFirst:
      return operand == 0;
    case Moves::kFirstTwo:
      return operand < 2;
    case Moves::kLastTwo:
      return operand_count == 3 && operand >= 1;
    case Moves::kAll:
      return true;
  }
  return false;
}

// The computation that a fusion consists of, when no one else calls it.
std::optional<size_t> fused_computation(const HloGraph& graph, HloNode fusion) {
  const HloInstruction& instruction = graph.at(fusion);
  if (instruction.opcode != "fusion" || instruction.called_computation_ids.size() != 1) {
    return std::nullopt;
  }
  const auto called = graph.find_computation(instruction.called_computation_ids.front());
  if (!called || graph.only_caller(*called) != fusion) return std::nullopt;
  return called;
}

// The fusion that `node` is part of; kNoHloNode when it is not inside one.
HloNode enclosing_fusion(const HloGraph& graph, HloNode node) {
  const size_t computation = graph.computation_of(node);
  const HloNode caller = graph.only_caller(computation);
  if (caller == kNoHloNode || fused_computation(graph, caller) != computation) return kNoHloNode;
  return caller;
}

// Adds what must be bf16 numbers for `value` to be one; false when that cannot be said.
bool expand_origin(const HloGraph& graph, const Value& value, Worklist& work) {
  const auto [node, element] = value;
  const HloInstruction& instruction = graph.at(node);
  const auto operands = graph.operands(node);
  const auto add = [&](size_t operand, int64_t part) {
    if (operand >= operands.size() || operands[operand] == kNoHloNode) return false;
    work.add(operands[operand], part);
    return true;
  };
  if (const auto called = fused_computation(graph, node)) {
    const HloNode root = graph.root(*called);
    if (root == kNoHloNode) return false;
    work.add(root, element);
    return true;
  }
  if (instruction.opcode == "parameter") {
    const HloNode fusion = enclosing_fusion(graph, node);
    if (fusion == kNoHloNode || instruction.parameter_number < 0) return false;
    const auto outer = graph.operands(fusion);
    const auto number = static_cast<size_t>(instruction.parameter_number);
    if (number >= outer.size() || outer[number] == kNoHloNode) return false;
    work.add(outer[number], element);
    return true;
  }
  if (instruction.opcode == "tuple") {
    return element != kWhole && add(static_cast<size_t>(element), kWhole);
  }
  if (element != kWhole) return false;
  if (instruction.opcode == "get-tuple-element") {
    return instruction.tuple_index >= 0 && add(0, instruction.tuple_index);
  }
  if (instruction.opcode == "convert" && instruction.element_type == kHloF32 &&
      operands.size() == 1 && operands[0] != kNoHloNode) {
    const int64_t from = graph.at(operands[0]).element_type;
    return from == kHloBf16 || (from == kHloF32 && add(0, kWhole));
  }
  const Moves moves = moves_of(instruction);
  if (moves == Moves::kNot) return false;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!moves_operand(moves, k, operands.size())) continue;
    if (operands[k] == kNoHloNode || graph.at(operands[k]).element_type != kHloF32) return false;
    work.add(operands[k], kWhole);
  }
  return !operands.empty();
}

// Adds what must be read only as bf16 for `value`, as seen by one of its users, to be; false when
// that user reads more.
bool expand_use(const HloGraph& graph, const HloUse& use, int64_t element, Worklist& work) {
  const HloInstruction& user = graph.at(use.user);
  if (const auto called = fused_computation(graph, use.user)) {
    const HloNode parameter = graph.parameter(*called, use.operand);
    if (parameter == kNoHloNode) return false;
    work.add(parameter, element);
    return true;
  }
  if (element != kWhole) {
    if (user.opcode != "get-tuple-element") return false;
    if (user.tuple_index == element) work.add(use.user, kWhole);
    return true;
  }
  if (user.opcode == "tuple") {
    work.add(use.user, static_cast<int64_t>(use.operand));
    return true;
  }
  if (user.opcode == "convert") {
    if (user.element_type == kHloF32) work.add(use.user, kWhole);
    return user.element_type == kHloF32 || user.element_type == kHloBf16;
  }
  const size_t operand_count = graph.operands(use.user).size();
  if (!moves_operand(moves_of(user), use.operand, operand_count)) return false;
  work.add(use.user, kWhole);
  return true;
}

// Where a value leaves its computation as the root, its readers are those of the fusion.
bool expand_root(const HloGraph& graph, const Value& value, Worklist& work) {
  if (graph.root(graph.computation_of(value.first)) != value.first) return true;
  const HloNode fusion = enclosing_fusion(graph, value.first);
  if (fusion == kNoHloNode) return false;
  work.add(fusion, value.second);
  return true;
}

bool is_only_read_as_bf16(const HloGraph& graph, const Value& start) {
  Worklist work;
  work.add(start.first, start.second);
  Value value;
  int uses = 0;
  while (work.take(value)) {
    if (!expand_root(graph, value, work)) return false;
    for (const HloUse& use : graph.users(value.first)) {
      if (++uses > kUsesMax) return false;
      if (!expand_use(graph, use, value.second, work)) return false;
    }
  }
  return !work.exhausted();
}

bool is_bf16_in_f32(const HloGraph& graph, HloNode operand) {
  if (operand == kNoHloNode) return false;
  Worklist work;
  work.add(operand, kWhole);
  Value value;
  while (work.take(value)) {
    if (!expand_origin(graph, value, work)) return false;
  }
  return !work.exhausted();
}

}  // namespace

bool are_bf16_in_f32(const HloGraph& graph, HloNode collective) {
  const auto operands = graph.operands(collective);
  return !operands.empty() && std::all_of(operands.begin(), operands.end(), [&](HloNode operand) {
    return is_bf16_in_f32(graph, operand);
  });
}

bool is_only_read_as_bf16(const HloGraph& graph, HloNode collective) {
  if (graph.at(collective).element_type != kHloTuple) {
    return is_only_read_as_bf16(graph, Value{collective, kWhole});
  }
  const auto count = static_cast<int64_t>(graph.operands(collective).size());
  for (int64_t k = 0; k < count; ++k) {
    if (!is_only_read_as_bf16(graph, Value{collective, k})) return false;
  }
  return true;
}

}  // namespace tersum
