// What a caller may choose: operation, plan, and the options of a communicator and of one call.
//
// Thread safety: plain values. Invariant: enumerators' numbers travel on the wire (call
// descriptors) and never change meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tersum {

enum class ReduceOp : uint8_t { kSum = 0, kAverage = 1, kMax = 2, kMin = 3 };
// "sum", "avg", "max", "min".
std::string_view reduce_op_name(ReduceOp op);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);

// docs/plans.md says what each does and which collectives it serves.
enum class PlanKind : uint8_t {
  kAuto = 0,
  kTwoStep = 1,
  kRing = 2,
  kOneShot = 3,
  kBidirectionalRing = 4,
  kHalvingDoubling = 5,
  kTorus = 6,
  kTree = 7,
  kHierarchical = 8,
};
inline constexpr int kPlanKindCount = 9;
// "auto", "two_step", "ring", "one_shot", "bidirectional_ring", "halving_doubling", "torus",
// "tree", "hierarchical".
std::string_view plan_kind_name(PlanKind kind);
std::optional<PlanKind> parse_plan_kind(std::string_view name);

enum class Collective : uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kBroadcast = 3,
  kBarrier = 4,
  kAllToAll = 5,
  kGather = 6,
  kScatter = 7,
};
inline constexpr int kCollectiveCount = 8;
// "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "all_to_all", "gather",
// "scatter".
std::string_view collective_name(Collective collective);
std::optional<Collective> parse_collective(std::string_view name);

enum class TransportKind : uint8_t { kAuto = 0, kTcp = 1, kSharedMemory = 2 };
// "auto", "tcp", "shm".
std::string_view transport_kind_name(TransportKind kind);
std::optional<TransportKind> parse_transport_kind(std::string_view name);

// Options of one call. All ranks must pass equal `codec` and `plan`; `timeout_ms` is each rank's
// own.
struct CallOptions {
  // A codec spec: "exact", "bf16", "int8", "int8/32", "int4/128"; or "auto": the fastest that
  // max_rel_error allows, where it is clearly faster than exact by what the group measured of
  // itself. The first such call of a group measures (Communicator::tune), which takes about 200 ms.
  // What is not a sum or average of float32, bfloat16 or float16 takes the exact path whatever is
  // named here. "auto:int8/128|int6/128+flatten": as "auto", among these and exact, with
  // max_rel_error above 0 (auto_codecs in codec_info.h; docs/tuning.md).
  std::string_view codec = "int8/128";
  PlanKind plan = PlanKind::kAuto;
  // Deadline of the call, from its start. 0 takes the communicator's.
  int64_t timeout_ms = 0;
  // The largest error that may come of a codec. With "auto", of sums, those of a list of tensors
  // taken together: ||result - exact|| / ||exact||, in samples of recent calls of the site (below;
  // also of the same lengths, type and operation). The first two calls of a site and then one in
  // 2^24 / values (of the whole list; at least one in 256, at most one in 16) take a sample: they
  // exchange 33 KB in the group before they start, and wait for it. Elsewhere: of each value, as a
  // part of (ranks * the largest magnitude that any rank holds), guaranteed: a named codec
  // that cannot is an error, and "auto" leaves it out. 0: what int8/128 guarantees (and exact where
  // values are only copied).
  double max_rel_error = 0;
  // For codecs with +flatten, of all_reduce: the length of the last dimension, along which values
  // have sizes of their own (a divisor of the count), and the name of the place that calls. What a
  // site has learned of its channels serves its next call; sites that see other data need names of
  // their own. 0 channels: the codec does with its Hadamard transform. All ranks pass the same.
  // Codecs with +feedback need a site's name, too, for sums: its next call is given what this one
  // loses. Those with +clip:learned learn one clip for all calls of a site that are of one length,
  // type and operation; with no name, for all such calls. "kmeans:K" learns the levels of a site
  // from its first all_reduce of 1,024 values or more, which travels as int8 does; later sums
  // there, of any length, use them.
  size_t channels = 0;
  std::string_view site = {};
  // For all_reduce of one array: what this rank contributes is, value by value, input[i] +
  // residual[i] + bias[i % bias_count], of which null pointers are left out. Both are of the
  // array's type; residual has its length, and bias_count divides it. The sum is formed while the
  // slices are encoded, without a pass over memory of its own: in float32 for float32, bfloat16 and
  // float16 (and rounded to the type only where it travels as it is), else in the type. `input`
  // does not change. residual may be the very output, or is apart from it; bias is apart. Each
  // rank's own choice: ranks need not agree.
  const void* residual = nullptr;
  const void* bias = nullptr;
  size_t bias_count = 0;
  // For start_…() only: the caller will wait() at once and drive the call itself, so no background
  // thread is woken for it. Until somebody waits such a call makes no progress of its own.
  bool attended = false;
};

// Options of a communicator. Those marked (agreed) must be equal on all ranks; joining ranks that
// differ get kDisagreement with both values.
struct CommunicatorOptions {
  // Deadline of calls that name none, and of the rendezvous itself.
  int64_t timeout_ms = 30'000;
  // Where this process listens: an address or an interface name ("eth0"). Empty: loopback when the
  // store is on loopback, otherwise the address that routes to the store.
  std::string listen_address;
  // 0: any free port. A taken one is kUnavailable. One listener serves a whole process, so only the
  // first communicator's choice counts.
  uint16_t listen_port = 0;
  TransportKind transport = TransportKind::kAuto;
  // TCP connections per pair of processes; 0 takes the measured default. TERSUM_STREAMS comes
  // first.
  int tcp_streams = 0;
  // Payload of one message at most, in bytes (agreed). 0 takes the measured best: 64 KiB in shared
  // memory, 63 KiB over TCP, but 252 KiB and 258,048 values between two ranks of one host, and
  // between hosts no more than 64,512 values (ranks that share CPUs: docs/tuning.md).
  // TERSUM_SLICE_BYTES comes first.
  size_t slice_bytes = 0;
  // Rules for what calls leave open (agreed), "all_reduce:64k-inf:int8/128:*,…": docs/tuning.md.
  // Empty takes the environment's TERSUM_TUNE.
  std::string tuning_rules;
  // Whether the group is tuned as soon as it has met (agreed), as tune() does, which a call that
  // leaves its codec open would do otherwise: plans that are open then go by what was measured from
  // the first call on, at 200 ms of the start. TERSUM_TUNE_AT_START comes first.
  bool tune_at_start = false;
  // Which ranks have wires between them (agreed): a name ("ring8", "torus2x4", "mesh4", "star8") or
  // the text of a topology file (docs/plans.md). Plans then use those wires only, and only
  // neighbours connect. Empty: every rank reaches every other.
  std::string topology;
  // Of codecs with +flatten: a site's channels are looked at in every so many calls, 1 or more
  // (agreed).
  uint32_t flatten_every = 1;
  // Of codecs with +sr: what this rank's random rounding begins from. The same seed and the same
  // calls in the same order give the same bits. Ranks round independently of each other, whether
  // their seeds are equal or not.
  uint64_t rounding_seed = 0;
  // Memory that one call may have in flight for receiving, in bytes (agreed): the window of every
  // flow shrinks with the number of ranks so that the sum stays below it. More than two ranks of
  // one host take less, what their cache holds of all of them, unless slice_bytes is given; and
  // ranks behind the switch of a topology with rates and latencies, where what runs ahead would
  // queue at a port that others are waited for at (docs/topologies.md).
  size_t window_bytes = 8 * 1024 * 1024;
  // Where this process writes a trace of its calls and slices, for Perfetto (docs/tracing.md);
  // empty: nowhere. TERSUM_TRACE comes first; and only the first communicator's choice counts.
  std::string trace_file;
};

}  // namespace tersum
