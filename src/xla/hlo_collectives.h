// Which instructions are collectives, and what can be said about one from its own fields and its
// reducer alone.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/status.h"
#include "xla/hlo_graph.h"

namespace tersum {

// True for everything that communicates, the start half of asynchronous pairs included (their done
// halves are not counted).
bool is_hlo_collective(std::string_view opcode);

// The operands of an all-reduce or reduce-scatter, all of one element type.
struct HloPayload {
  int64_t element_type = 0;
  int64_t elements = 0;  // of all operands together
  int64_t bytes = 0;
};

// For the report: the operands' element types, and elements and bytes as far as they are known.
std::string describe_element_types(const HloGraph& graph, HloNode node);
HloPayload measure_payload(const HloGraph& graph, HloNode node);
// Of each operand, the size of the dimension along which its elements lie side by side; 0 for
// those of fewer than two dimensions and for shapes not understood.
std::vector<int64_t> operand_channels(const HloGraph& graph, HloNode node);

// True when XLA promoted this operation: its f32 reducer is named so.
bool is_promoted(const HloGraph& graph, HloNode node);

// Ok when `node`, an all-reduce or reduce-scatter, is a plain sum of f32, bf16 or f16 arrays that
// lie flat in memory; otherwise kUnsupported with the sentence that says what it is instead.
Status check_plain_sum(const HloGraph& graph, HloNode node, const HloCollective& collective);

// What `check_plain_sum` does not know: the sizes along the scattered dimension must fit the
// groups, and each shard must be contiguous.
Status check_scatter(const HloGraph& graph, HloNode node, const HloCollective& collective,
                     int64_t group_size);

}  // namespace tersum
