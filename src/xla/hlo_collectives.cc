#include "xla/hlo_collectives.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace tersum {
namespace {

constexpr std::string_view kCollectives[] = {
    "all-gather",        "all-gather-start",     "all-reduce",         "all-reduce-start",
    "all-to-all",        "collective-broadcast", "collective-permute", "collective-permute-start",
    "ragged-all-to-all", "reduce-scatter",
};

bool is_summed_type(int64_t element_type) {
  return element_type == kHloF32 || element_type == kHloBf16 || element_type == kHloF16;
}

// Elements of an array shape; nothing where a size is negative or the product overflows.
std::optional<int64_t> element_count(const HloShape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape.dimensions) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

// Some permutation of all dimensions and nothing else; without a layout, nothing to permute.
bool is_flat(const HloShape& shape) {
  if (!shape.layout_is_plain) return false;
  const size_t rank = shape.dimensions.size();
  if (!shape.has_layout) return rank <= 1;
  if (shape.minor_to_major.size() != rank) return false;
  std::vector<int64_t> sorted = shape.minor_to_major;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < rank; ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

int64_t minor_dimension(const HloInstruction& instruction) {
  const auto shape = parse_hlo_shape(instruction.shape);
  if (!shape.ok() || shape.value().dimensions.size() < 2 || !is_flat(shape.value())) return 0;
  const HloShape& array = shape.value();
  return array.dimensions[static_cast<size_t>(array.minor_to_major.front())];
}

Status not_plain() { return unsupported("its reducer is not a plain add of two parameters"); }

// A scalar of `element_type`.
bool is_scalar(const HloInstruction& instruction, int64_t element_type) {
  const auto shape = parse_hlo_shape(instruction.shape);
  return shape.ok() && shape.value().element_type == element_type &&
         shape.value().dimensions.empty();
}

Status check_reducer(const HloGraph& graph, const HloInstruction& instruction,
                     int64_t element_type) {
  if (instruction.called_computation_ids.size() != 1) return not_plain();
  const auto called = graph.find_computation(instruction.called_computation_ids.front());
  if (!called || graph.root(*called) == kNoHloNode) return not_plain();
  const HloNode root = graph.root(*called);
  if (graph.at(root).opcode != "add") {
    return unsupported("it reduces with " + std::string(graph.at(root).opcode) + ", not with add");
  }
  const auto operands = graph.operands(root);
  const HloNode first = graph.parameter(*called, 0);
  const HloNode second = graph.parameter(*called, 1);
  const bool adds_both = operands.size() == 2 && first != kNoHloNode && second != kNoHloNode &&
                         ((operands[0] == first && operands[1] == second) ||
                          (operands[0] == second && operands[1] == first));
  if (!adds_both || graph.computation_size(*called) != 3) return not_plain();
  for (const HloNode node : {first, second, root}) {
    if (!is_scalar(graph.at(node), element_type)) return not_plain();
  }
  return ok_status();
}

// Every operand has the shape that the instruction's own shape says, and lies flat in memory.
// `scattered` >= 0 is the dimension that a reduce-scatter divides.
Status check_array(const HloShape& operand, const HloShape& result, int64_t scattered) {
  if (operand.is_dynamic || result.is_dynamic) return unsupported("its shape is dynamic");
  if (!is_flat(operand) || !is_flat(result)) {
    return unsupported("the layout of its arrays is not known or not flat");
  }
  if (operand.minor_to_major != result.minor_to_major) {
    return unsupported("its operand and result are laid out differently");
  }
  bool same = operand.element_type == result.element_type &&
              operand.dimensions.size() == result.dimensions.size();
  for (size_t i = 0; same && i < operand.dimensions.size(); ++i) {
    const bool is_divided = scattered == static_cast<int64_t>(i);
    same = is_divided || operand.dimensions[i] == result.dimensions[i];
  }
  return same ? ok_status() : unsupported("its operand and result have different shapes");
}

// The result's array shape for operand `k`; null where the shape is not understood.
const HloShape* result_shape(const HloShape& shape, size_t k, size_t operand_count) {
  if (shape.element_type != kHloTuple) return operand_count == 1 ? &shape : nullptr;
  return shape.tuple_shapes.size() == operand_count ? &shape.tuple_shapes[k] : nullptr;
}

}  // namespace

bool is_hlo_collective(std::string_view opcode) {
  return std::find(std::begin(kCollectives), std::end(kCollectives), opcode) !=
         std::end(kCollectives);
}

std::string describe_element_types(const HloGraph& graph, HloNode node) {
  std::vector<std::string_view> names;
  for (const HloNode operand : graph.operands(node)) {
    if (operand == kNoHloNode) continue;
    const std::string_view name = hlo_element_type_name(graph.at(operand).element_type);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

HloPayload measure_payload(const HloGraph& graph, HloNode node) {
  HloPayload out;
  for (const HloNode operand : graph.operands(node)) {
    if (operand == kNoHloNode) return {};
    const auto shape = parse_hlo_shape(graph.at(operand).shape);
    if (!shape.ok()) return {};
    const auto count = element_count(shape.value());
    int64_t bytes = 0;
    if (!count ||
        __builtin_mul_overflow(*count, hlo_element_bytes(shape.value().element_type), &bytes) ||
        __builtin_add_overflow(out.bytes, bytes, &out.bytes) ||
        __builtin_add_overflow(out.elements, *count, &out.elements)) {
      return {};
    }
    out.element_type = shape.value().element_type;
  }
  return out;
}

std::vector<int64_t> operand_channels(const HloGraph& graph, HloNode node) {
  std::vector<int64_t> out;
  out.reserve(graph.operands(node).size());
  for (const HloNode operand : graph.operands(node)) {
    out.push_back(operand == kNoHloNode ? 0 : minor_dimension(graph.at(operand)));
  }
  return out;
}

bool is_promoted(const HloGraph& graph, HloNode node) {
  const HloInstruction& instruction = graph.at(node);
  if (instruction.called_computation_ids.size() != 1) return false;
  const auto called = graph.find_computation(instruction.called_computation_ids.front());
  if (!called || graph.root(*called) == kNoHloNode) return false;
  return graph.at(graph.root(*called)).element_type == kHloF32 &&
         graph.computation_name(*called).ends_with("_promoted");
}

Status check_plain_sum(const HloGraph& graph, HloNode node, const HloCollective& collective) {
  const auto operands = graph.operands(node);
  if (operands.empty()) return unsupported("it has no operands");
  if (collective.constrain_layout) return unsupported("it constrains the layout of its operands");
  const bool is_scatter = graph.at(node).opcode == "reduce-scatter";
  if (is_scatter && collective.dimensions.size() != 1) {
    return unsupported("it does not scatter along one dimension");
  }
  const int64_t scattered = is_scatter ? collective.dimensions.front() : -1;
  int64_t element_type = 0;
  for (size_t k = 0; k < operands.size(); ++k) {
    const HloShape* result = result_shape(collective.shape, k, operands.size());
    if (operands[k] == kNoHloNode || result == nullptr) {
      return unsupported("its result is not one array per operand");
    }
    const auto operand = parse_hlo_shape(graph.at(operands[k]).shape);
    if (!operand.ok()) return unsupported("the shape of an operand is malformed");
    const int64_t type = operand.value().element_type;
    if (!is_summed_type(type)) {
      return unsupported("its element type is " + std::string(hlo_element_type_name(type)) +
                         "; f32, bf16 and f16 are summed");
    }
    if (k > 0 && type != element_type) return unsupported("its operands differ in element type");
    element_type = type;
    TERSUM_RETURN_IF_ERROR(check_array(operand.value(), *result, scattered));
    if (!element_count(operand.value())) return unsupported("its shape is malformed");
  }
  return check_reducer(graph, graph.at(node), element_type);
}

Status check_scatter(const HloGraph& graph, HloNode node, const HloCollective& collective,
                     int64_t group_size) {
  const auto operands = graph.operands(node);
  const auto dimension = static_cast<size_t>(collective.dimensions.front());
  for (size_t k = 0; k < operands.size(); ++k) {
    const HloShape* result = result_shape(collective.shape, k, operands.size());
    const auto operand = parse_hlo_shape(graph.at(operands[k]).shape);
    if (result == nullptr || !operand.ok() || collective.dimensions.front() < 0 ||
        dimension >= operand.value().dimensions.size()) {
      return unsupported("it scatters along a dimension that its operand does not have");
    }
    int64_t expected = 0;
    if (__builtin_mul_overflow(result->dimensions[dimension], group_size, &expected) ||
        expected != operand.value().dimensions[dimension]) {
      return unsupported("its shards are not all of the same size");
    }
    // Dimensions of size 1 above the scattered one do not interrupt a shard.
    const auto& order = operand.value().minor_to_major;
    for (size_t i = order.size(); i-- > 0;) {
      if (order[i] == static_cast<int64_t>(dimension)) break;
      if (operand.value().dimensions[static_cast<size_t>(order[i])] != 1) {
        return unsupported(
            "it scatters along a dimension that is not the most major one in memory");
      }
    }
  }
  return ok_status();
}

}  // namespace tersum
