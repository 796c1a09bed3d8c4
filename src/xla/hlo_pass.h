// The HLO pass: swaps the all-reduces and reduce-scatters that it fully understands for typed-FFI
// custom calls, leaves everything else exactly as it was, and says which and why.
//
// Thread safety: pure; any number of modules at once. Invariants: the output equals the input byte
// for byte but for the instructions reported as rewritten (and the lengths of the computations that
// hold them); the same module and options give the same bytes in every process, except that which
// groups count as local depends on `local_devices`: a group that crosses processes is decided alike
// by all its members. Time and memory are linear in the module's size, also for hostile bytes.
//
// A rewritten instruction keeps name, shape, id, operands, control predecessors, metadata and
// frontend attributes. Its target is kHloAllReduceTarget or kHloReduceScatterTarget, one buffer per
// operand and per result in the operands' order; result r of a reduce-scatter is the r-th
// contiguous part of the operand, for the r-th device of its group. Its attributes (MLIR dictionary
// text in backend_config):
//   groups      array<i64: …>  all groups one after the other, as global device ids, in rank order
//   group_size  i64            devices per group
//   fingerprint i64            of the original module, equal in all processes (hlo_fingerprint.h)
//   operation   i64            number among the module's collectives, rewritten or not
//   codec       string         canonical codec spec
//   plan        string
//   timeout_ms  i64
//   wire_bf16   true | false   true only with the codec "exact": the operands are f32 that XLA
//                              promoted from bf16, and are to travel as bf16, which loses nothing
//                              under a plan that rounds once (hlo_bf16_proof.h: not a ring)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

inline constexpr std::string_view kHloAllReduceTarget = "tersum_all_reduce";
inline constexpr std::string_view kHloReduceScatterTarget = "tersum_reduce_scatter";

// The frontend attribute by which a program chooses for one operation:
// `set_xla_metadata(tersum="int4/32")`, or "off" to leave it to XLA, or "auto", or
// "auto:int8/128|int6/128+flatten", which names the codecs to choose among.
inline constexpr std::string_view kHloChoiceAttribute = "tersum";
inline constexpr std::string_view kHloChoiceOff = "off";
inline constexpr std::string_view kHloChoiceAuto = "auto";

// The codec that changes no value; the only one that the pass knows by name.
inline constexpr std::string_view kHloExactCodec = "exact";

struct HloPassOptions {
  // For operations that choose nothing themselves: a codec spec, or "off".
  std::string codec = "int8/128";
  // What the choice "auto" stands for, "auto:E"; empty: an operation that makes it is an error.
  std::string auto_codec;
  std::string plan = "auto";
  int64_t timeout_ms = 30'000;
  // An operation with fewer bytes of operands is left to XLA, also when it chooses a codec.
  int64_t min_bytes = 64 * 1024;
  // Global ids of this process's devices. An operation none of whose groups leaves the process is
  // left to XLA unless rewrite_local_groups.
  std::vector<int64_t> local_devices;
  bool rewrite_local_groups = false;
  // The global device ids of every process. With it, all processes decide alike: an operation is
  // local when each of its groups, not only this process's, lies within a process. That matters,
  // since XLA orders a program by its instructions and may wait for one collective before it starts
  // the next: processes with differing programs would wait for each other for ever.
  std::vector<std::vector<int64_t>> processes;
  // Checks a codec spec and gives its canonical form, or the error that names what is allowed. The
  // pass itself does not know the codecs. Required.
  Result<std::string> (*canonical_codec)(std::string_view spec) = nullptr;
};

enum class HloOutcome : uint8_t {
  kRewritten,
  kLeftAlone,
  kError,  // left alone, because the program asked for something that cannot be done
};
// "rewritten", "left alone", "error".
std::string_view hlo_outcome_name(HloOutcome outcome);

// One collective of the module.
struct HloReportRow {
  std::string module;
  std::string instruction;
  std::string opcode;
  std::string op_name;       // where the program has it: "jit(step)/psum"; may be empty
  std::string element_type;  // "f32"; "f32, bf16" for a tuple of both
  int64_t elements = 0;      // of the operands, on one device; 0 where the shape is not understood
  int64_t bytes = 0;
  std::string groups;  // "2 groups of 4"; empty where they are not understood
  int64_t operation = 0;
  int64_t fingerprint = 0;  // of the module; with `operation` it names the rewritten call
  // Of each operand, the size of the dimension whose neighbours lie side by side in memory; 0 where
  // there is none or the shape is not understood.
  std::vector<int64_t> channels;
  HloOutcome outcome = HloOutcome::kLeftAlone;
  std::string codec;  // when rewritten
  // Promoted by XLA from bf16 to f32 before the pass saw it.
  bool promoted = false;
  // ... and, under the exact codec, travels as bf16, which was proved to lose nothing.
  bool wire_bf16 = false;
  std::string reason;  // a sentence
};

struct HloPassOutput {
  bool changed = false;
  std::string module;  // empty unless `changed`
  std::vector<HloReportRow> rows;
};

// kInvalidArgument: the bytes are no HloModuleProto, or an option is wrong (its name is said).
Result<HloPassOutput> run_hlo_pass(std::string_view serialized_module,
                                   const HloPassOptions& options);

}  // namespace tersum
