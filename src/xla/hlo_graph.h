// A module's instructions as one graph: who uses whom, and who calls which computation.
//
// Thread safety: immutable after construction. It refers to the HloModule it was made from.
// Invariants: nodes number all instructions in the module's order; operands and users stay within
// one computation. Built in one pass, linear in instructions and operand references.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "xla/hlo_proto.h"

namespace tersum {

using HloNode = uint32_t;
// An operand id that names no instruction of its computation, or a root that does not exist.
inline constexpr HloNode kNoHloNode = UINT32_MAX;

// `user` reads the value as its operand number `operand`.
struct HloUse {
  HloNode user = kNoHloNode;
  uint32_t operand = 0;
};

class HloGraph {
 public:
  explicit HloGraph(const HloModule& module);

  [[nodiscard]] size_t node_count() const { return instructions_.size(); }
  [[nodiscard]] const HloInstruction& at(HloNode node) const { return *instructions_[node]; }
  // Index of the computation that holds `node`.
  [[nodiscard]] size_t computation_of(HloNode node) const { return computation_of_[node]; }
  [[nodiscard]] HloNode first_of(size_t computation) const { return first_[computation]; }
  [[nodiscard]] std::span<const HloNode> operands(HloNode node) const;
  [[nodiscard]] std::span<const HloUse> users(HloNode node) const;
  [[nodiscard]] size_t computation_size(size_t computation) const {
    return module_.computations[computation].instructions.size();
  }
  [[nodiscard]] std::string_view computation_name(size_t computation) const {
    return module_.computations[computation].name;
  }
  [[nodiscard]] HloNode root(size_t computation) const { return roots_[computation]; }
  [[nodiscard]] std::optional<size_t> find_computation(int64_t id) const;
  // The one instruction that calls `computation`, once; kNoHloNode where there are several or none.
  [[nodiscard]] HloNode only_caller(size_t computation) const;
  // True when an instruction with this opcode calls `computation`.
  [[nodiscard]] bool is_called_by(size_t computation, std::string_view opcode) const;
  // Parameter number `number` of `computation`.
  [[nodiscard]] HloNode parameter(size_t computation, int64_t number) const;

 private:
  void index_computation(size_t index, const HloComputation& computation);
  void index_users();

  const HloModule& module_;
  std::unordered_map<int64_t, size_t> computation_by_id_;
  std::vector<const HloInstruction*> instructions_;
  std::vector<uint32_t> computation_of_;
  std::vector<HloNode> first_;
  std::vector<HloNode> roots_;
  std::vector<std::vector<HloNode>> callers_;
  std::vector<HloNode> operands_;
  std::vector<size_t> operands_first_;
  std::vector<HloUse> users_;
  std::vector<size_t> users_first_;
};

}  // namespace tersum
