#include "xla/hlo_graph.h"

#include <algorithm>

namespace tersum {

HloGraph::HloGraph(const HloModule& module) : module_(module) {
  size_t node_count = 0;
  for (size_t c = 0; c < module.computations.size(); ++c) {
    computation_by_id_.emplace(module.computations[c].id, c);
    node_count += module.computations[c].instructions.size();
  }
  instructions_.reserve(node_count);
  computation_of_.reserve(node_count);
  operands_first_.reserve(node_count + 1);
  operands_first_.push_back(0);
  callers_.resize(module.computations.size());
  for (size_t c = 0; c < module.computations.size(); ++c) {
    index_computation(c, module.computations[c]);
  }
  index_users();
}

void HloGraph::index_computation(size_t index, const HloComputation& computation) {
  const auto first = static_cast<HloNode>(instructions_.size());
  first_.push_back(first);
  std::unordered_map<int64_t, HloNode> node_by_id;
  node_by_id.reserve(computation.instructions.size());
  for (size_t i = 0; i < computation.instructions.size(); ++i) {
    node_by_id.emplace(computation.instructions[i].id, first + static_cast<HloNode>(i));
  }
  const auto find = [&node_by_id](int64_t id) {
    const auto it = node_by_id.find(id);
    return it == node_by_id.end() ? kNoHloNode : it->second;
  };
  for (const HloInstruction& instruction : computation.instructions) {
    const auto node = static_cast<HloNode>(instructions_.size());
    instructions_.push_back(&instruction);
    computation_of_.push_back(static_cast<uint32_t>(index));
    for (const int64_t id : instruction.operand_ids) operands_.push_back(find(id));
    operands_first_.push_back(operands_.size());
    for (const int64_t id : instruction.called_computation_ids) {
      const auto called = find_computation(id);
      if (called) callers_[*called].push_back(node);
    }
  }
  roots_.push_back(find(computation.root_id));
}

// Counting sort of the operand references by what they refer to.
void HloGraph::index_users() {
  users_first_.assign(instructions_.size() + 1, 0);
  for (const HloNode operand : operands_) {
    if (operand != kNoHloNode) ++users_first_[operand + 1];
  }
  for (size_t i = 1; i < users_first_.size(); ++i) users_first_[i] += users_first_[i - 1];
  users_.resize(users_first_.back());
  std::vector<size_t> next(users_first_.begin(), users_first_.end() - 1);
  for (HloNode node = 0; node < instructions_.size(); ++node) {
    const auto mine = operands(node);
    for (size_t k = 0; k < mine.size(); ++k) {
      if (mine[k] != kNoHloNode) users_[next[mine[k]]++] = {node, static_cast<uint32_t>(k)};
    }
  }
}

std::span<const HloNode> HloGraph::operands(HloNode node) const {
  return std::span(operands_).subspan(operands_first_[node],
                                      operands_first_[node + 1] - operands_first_[node]);
}

std::span<const HloUse> HloGraph::users(HloNode node) const {
  return std::span(users_).subspan(users_first_[node], users_first_[node + 1] - users_first_[node]);
}

std::optional<size_t> HloGraph::find_computation(int64_t id) const {
  const auto it = computation_by_id_.find(id);
  if (it == computation_by_id_.end()) return std::nullopt;
  return it->second;
}

HloNode HloGraph::only_caller(size_t computation) const {
  const auto& callers = callers_[computation];
  return callers.size() == 1 ? callers.front() : kNoHloNode;
}

bool HloGraph::is_called_by(size_t computation, std::string_view opcode) const {
  const auto& callers = callers_[computation];
  return std::any_of(callers.begin(), callers.end(),
                     [&](HloNode caller) { return at(caller).opcode == opcode; });
}

HloNode HloGraph::parameter(size_t computation, int64_t number) const {
  const auto& instructions = module_.computations[computation].instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].opcode == "parameter" && instructions[i].parameter_number == number) {
      return first_[computation] + static_cast<HloNode>(i);
    }
  }
  return kNoHloNode;
}

}  // namespace tersum
