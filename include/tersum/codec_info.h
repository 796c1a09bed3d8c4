// What a codec costs and how wrong it can be, for callers who choose one.
//
// Thread safety: pure functions. A codec is named by a spec, the same everywhere: "exact", "bf16",
// "int8" (block 128), "int8/32", "int4/256"; docs/codecs.md specifies the formats. Unknown specs
// are kInvalidArgument with a message that names what is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

// The spec in normal form: "int8" becomes "int8/128". Two specs name the same codec if and only if
// their normal forms are equal.
Result<std::string> normalize_codec(std::string_view spec);

// The known formats without block: "exact", "bf16", "int8", "int4", …; tables and what
// learns them are not among them.
std::vector<std::string> known_codecs();

// Makes levels a format of this process: 2, 4, 8 or 16 of them, ascending, in [-1, 1], parts of the
// largest magnitude of a block. The result is its spec, "table:" and 16 hexadecimal digits, which
// means these levels wherever they are registered; ranks that use it register equal ones. Blocks
// and modifiers may be put behind it. Levels of a file are "table:FILE", without a registration:
// decimal numbers with white space between, '#' begins a comment. Nothing is ever forgotten.
// kInvalidArgument names the level that is wrong.
Result<std::string> register_table(std::span<const float> levels);

// The levels, for register_table, that code such numbers with the least weighted squared error:
// k-means in one dimension. `parts`: values divided by the scales of their blocks, so in [-1, 1];
// `weights`, one for each, 0 or more: a block's scale squared, times what an error there matters.
// Ascending; the same on every machine. `count`: 2, 4, 8 or 16. Takes milliseconds.
// kInvalidArgument says which number is wrong, or that none weighs anything.
Result<std::vector<float>> learn_levels(std::span<const double> parts,
                                        std::span<const double> weights, size_t count);

// Makes matrices a modifier of this process: blocks of n1 n2 values, seen as n1 rows of n2, are
// multiplied by the transpose of `p1` (n1 x n1, row by row) from the left and by `p2` (n2 x n2)
// from the right before they are coded, and value i of an array first by diagonal[i mod its
// length], if it is not empty. The result is "kronecker:" and 16 hexadecimal digits, to be put
// behind a spec with such blocks and '+'; as with tables, ranks register equal ones.
// "kronecker:FILE" needs no registration (docs/wire-format.md). kInvalidArgument says what is
// wrong: sides that are no powers of two up to 128, blocks that have not 16 to 1,024 values,
// numbers that are not finite, matrices without an inverse or with a condition number above 1,024,
// factors that are 0 or as far apart.
Result<std::string> register_kronecker(std::span<const float> p1, std::span<const float> p2,
                                       std::span<const float> diagonal = {});

// What a spec comes to for a value type and an operation.
// Of "kmeans:K" what is said holds once there are levels; the call that learns them takes int8.
struct CodecInfo {
  std::string spec;  // of the codec that serves them: "exact" where the one asked for cannot
  DataType value_type = DataType::kFloat32;
  // Values that share a scale; 1 for formats without blocks. With +adaptive they are 32 to 1,024,
  // and this says how many bytes the blocks may take beside their codes.
  uint32_t block = 1;
  bool lossless = true;
  double wire_bits = 32;  // per value, scales included, for whole blocks
};
Result<CodecInfo> codec_info(std::string_view spec, DataType type = DataType::kFloat32,
                             ReduceOp op = ReduceOp::kSum);

// Among which codecs a call chooses whose codec is "auto", or "auto:SPEC|SPEC|…", which names them:
// in normal form, by the wire bits of a contribution, falling. ("auto:" and these with '|' between
// them is the normal form of such a list.) kInvalidArgument says which spec is none, stands twice
// or cannot be chosen, and why.
Result<std::vector<std::string>> auto_codecs(std::string_view codec = "auto");

// Bytes of `count` values on the wire, without message headers.
Result<size_t> codec_wire_bytes(std::string_view spec, size_t count,
                                DataType type = DataType::kFloat32, ReduceOp op = ReduceOp::kSum);

// Bits per value that an all-reduce of `ranks` ranks sends by the plan two_step: the mean of a
// contribution's and a finished sum's, which some formats give more room, and of what ranks agree
// on before it. For long arrays. kUnsupported: the format does not sum so many.
Result<double> codec_sum_bits(std::string_view spec, uint32_t ranks,
                              DataType type = DataType::kFloat32, ReduceOp op = ReduceOp::kSum);

// The largest |decode(encode(x)) - x| in a block whose largest magnitude is `absmax`; infinite
// where `absmax` is not finite in the value type. The bound of a collective's result follows from
// its plan: Communicator::error_bound.
Result<double> codec_block_error_bound(std::string_view spec, double absmax,
                                       DataType type = DataType::kFloat32,
                                       ReduceOp op = ReduceOp::kSum);

}  // namespace tersum
