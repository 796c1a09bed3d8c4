// Operation: one collective in flight on one rank, as a state machine that only advances.
//
// It runs a compiled plan slice by slice: contributions are encoded straight into what travels (by
// way of a buffer for peers whose cores are far), combined by the chunk's owner straight from what
// arrived, and the owner's bytes are decoded by everybody. It owns no thread, never waits, and
// knows no transport: it sends through its node. Where ranks of one host let each other touch their
// arrays, owners read, add up and write them without messages (operation_reach.cc).
//
// Thread safety: begin, on_message, advance, fail belong to the holder of the progress role.
// `done`, `status` (after done) and the wait of the runtime may be used from any thread.
// Invariants: the caller's memory is touched only between begin() and the moment `done` becomes
// true, and only by the role's holder, or by peers to whom this rank has opened it. An operation
// ends without error only after every rank's descriptor was received and agreed, so no message of a
// completed call can still be under way to this rank. Objects are pooled: no allocation after the
// first call of a size (and the first to a far peer).
//
// A sum whose ranks share scales runs two plans: one of its own takes the maximum of all ranks'
// scales, and the call's follows it slice by slice, so that codes travel while other scales are
// still agreed on. Messages of the two are told apart by their phase.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/clip_report.h"
#include "codec/codec.h"
#include "codec/observed_rows.h"
#include "codec/outlier_places.h"
#include "codec/streamed_payload.h"
#include "runtime/call_descriptor.h"
#include "runtime/compiled_plan.h"
#include "runtime/plan_run.h"
#include "runtime/trace_recorder.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "transport/array_door.h"
#include "transport/link.h"

namespace tersum {

class FeedbackSite;
class SharedSums;
struct ClipSite;
struct FlattenSite;
struct LevelsSite;
class Member;
class Node;

// Payloads from here on are sent from the caller's arrays and received into them where their bytes
// are the values: copying less costs next to nothing, and what is lent may cost a system call.
inline constexpr size_t kInPlaceBytesMin = 4096;
// Calls of shorter arrays are soon over, whoever else is in flight.
inline constexpr size_t kTurnArrayBytesMin = 4 * 1024 * 1024;

// What a caller asks for; plain values and borrowed pointers.
struct CallRequest {
  Collective collective = Collective::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;  // as in the public API of the collective
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  const Codec* codec = nullptr;
  PlanKind plan = PlanKind::kAuto;
  int root = 0;
  int64_t start_ns = 0;
  int64_t timeout_ms = 0;
  uint64_t call = 0;     // sequence number or key
  uint64_t tensors = 0;  // checksum of what the array is made of; 0: one array
  // As PlanArrays::parts; lives until the call has ended. Only of a sum with a codec that
  // takes parts, of whole blocks each, without a site.
  std::span<const ArrayPart> parts = {};
  size_t channels = 0;    // of a call that is flattened, or teaches them; 0: it is none
  uint64_t site = 0;      // where it is flattened, or learns a clip or levels
  uint64_t clip = 0;      // of a call that learns one, what its kind have in common; 0: it is none
  uint64_t levels = 0;    // of one that learns levels, digest of its codec; 0: it learns none
  uint64_t rounding = 0;  // key of the random numbers of +sr
  uint64_t feedback = 0;  // key of the site whose losses are kept; 0: none
  AddedTerms added;       // to the input
};

using OnDone = void (*)(void* context, const Status& status);

// What a public Work handle refers to: an operation, or a call that failed before it began.
class WorkImpl {
 public:
  virtual ~WorkImpl() = default;
  [[nodiscard]] virtual bool done() const = 0;
  // As Work::wait.
  virtual Status wait(int64_t timeout_ms) = 0;
};

class Operation final : public WorkImpl {
 public:
  // --- any thread ---
  [[nodiscard]] bool done() const override { return done_.load(std::memory_order_acquire); }
  Status wait(int64_t timeout_ms) override;
  // Require done().
  [[nodiscard]] const Status& status() const { return status_; }

  // --- before the operation is handed to the node ---
  void prepare(std::shared_ptr<Member> member, const CallRequest& request, OnDone on_done,
               void* context);

  // --- progress role ---
  void begin(Node& node);
  void on_message(Node& node, InMessage message);
  // Where a payload may be put that is about to arrive: in the caller's output, if it belongs there
  // as it is; else nothing is added.
  void find_landing(const MessageHeader& header, Landing& landing);
  // Does what is possible now, a bounded amount; true if anything moved.
  bool advance(Node& node, int64_t now_ns);
  // Ends the call here and, by a notice, on the other ranks. No effect after the end.
  void fail(Node& node, const Status& status);
  // A notice of another rank ended the call.
  void on_cancel(Node& node, const CancelNotice& notice, int from_rank);
  // A descriptor of this call was handed on to another rank.
  void on_transit() { ++transits_; }
  // The process of `rank` is gone. Fails unless everything of that rank has arrived already.
  void on_peer_down(Node& node, int rank, const Status& reason);

  [[nodiscard]] Member& member() { return *member_; }
  [[nodiscard]] const CallRequest& request() const { return request_; }
  [[nodiscard]] int64_t deadline_ns() const { return deadline_ns_; }
  [[nodiscard]] uint64_t bytes_sent() const { return bytes_sent_; }
  // Of a call that has begun: one beside which others of its kind had better wait (node_turns.cc).
  [[nodiscard]] bool takes_turns() const {
    return gathers_ && request_.count * element_bytes(request_.type) >= kTurnArrayBytesMin;
  }

 private:
  struct PeerState {
    bool ready = false;
    bool placed = false;  // its chunk lies in the output here
    OpenArrays arrays;
    ArrayReach* reach = nullptr;  // of a call that asked to touch them
    uint32_t eager_bytes = 0;     // sent before the peer was ready
  };

  // Set-up (operation.cc).
  [[nodiscard]] PlanRequest wanted_plan(const Codec& codec) const;
  Status resolve_plan(const PlanRequest& wanted, const Codec& codec, const SliceLimits& limits,
                      std::shared_ptr<const CompiledPlan>& found);
  // Sites (operation_sites.cc).
  void enter_site();
  bool take_site(Node& node);
  void leave_site(bool ended_well);
  Status take_clip();
  Status take_levels();
  Status change_codec(const Codec& codec, const PlanRequest& wanted);
  void read_payload(const Codec& codec, const std::byte* wire, size_t first, size_t count);
  void read_gathered(const PlanRun& run, const std::byte* wire, size_t count,
                     const SlicePlace& place);
  void read_replicated(const PlanRun& run, size_t count, const CombineFinish& finish,
                       const SlicePlace& place);
  void send_ready(Node& node);
  // Shared scales (operation_scales.cc).
  Status begin_scales();
  [[nodiscard]] SliceLimits scale_limits() const;
  bool measure_whole();
  void measure_own(const PlanRun& run, const ChunkRole& role, uint32_t slice);
  void measure_values(size_t first, size_t count);
  [[nodiscard]] bool has_scales(const PlanRun& run, const ChunkRole& role, uint32_t slice) const;
  [[nodiscard]] PlanRun* find_run(FlowPhase phase);
  [[nodiscard]] size_t scale_index(size_t first) const;
  void on_ready(Node& node, const InMessage& message);
  void on_data(Node& node, InMessage message);
  void on_credit(Node& node, const MessageHeader& header);
  void fail_protocol(Node& node, int from_rank, const std::string& what);
  void finish(Node& node, Status status);
  [[nodiscard]] bool complete() const;
  [[nodiscard]] bool all_entered() const;
  void check_deadline(Node& node, int64_t now_ns);
  [[nodiscard]] std::string blame(const Node& node) const;
  [[nodiscard]] bool still_needs(int rank) const;
  void notify_others(Node& node, const Status& status);

  // Arrays of peers (operation_reach.cc).
  void ask_reach(Node& node);
  [[nodiscard]] bool is_worth_reaching() const;
  [[nodiscard]] bool can_reach(const Node& node) const;
  void hear_arrays(const OpenArrays& arrays, int from);
  bool advance_reach(Node& node, int64_t now_ns);
  bool sum_piece(Node& node, uint32_t role_index, int64_t now_ns);
  // `rank`: whose arrays were touched last.
  Touched fetch(const ChunkRole& role, size_t begin_bytes, size_t bytes, int* rank);
  void add_up_fetched(const ChunkRole& role, size_t first, size_t count);
  Touched place_sums(const ChunkRole& role, size_t begin_bytes, size_t bytes, int* rank);
  void judge_refusal(Node& node, Touched touched, int rank, int64_t now_ns);
  void tell_placed(Node& node, uint32_t role_index);
  void on_placed(Node& node, const MessageHeader& header);
  void close_arrays();

  // Slices (operation_slices.cc).
  [[nodiscard]] int slice_budget(const PlanRun& run, int most) const;
  bool advance_run(Node& node, PlanRun& run);
  bool advance_stores(Node& node, PlanRun& run);
  bool advance_combines(Node& node, PlanRun& run);
  bool advance_leaves(Node& node, PlanRun& run);
  bool advance_jobs(Node& node, PlanRun& run);
  bool produce_slice(Node& node, PlanRun& run, uint32_t role_index);
  void encode(const PlanRun& run, const ChunkRole& role, const FlowRange& outs, uint32_t slice,
              std::span<std::byte> payload);
  void add_up(PlanRun& run, const ChunkRole& role, const FlowRange& outs, uint32_t slice,
              std::span<std::byte> payload);
  void copy_payload(const PlanRun& run, const FlowRange& outs, std::byte* payload,
                    std::span<const std::byte> arrived);
  bool encode_replicated(Node& node, PlanRun& run, uint32_t role_index);
  bool combine_replicated(Node& node, PlanRun& run, uint32_t role_index);
  bool store_slice(Node& node, PlanRun& run, uint32_t role_index);
  [[nodiscard]] bool can_send(const Node& node, const PlanRun& run, const FlowRange& range,
                              uint32_t slice, size_t bytes) const;
  [[nodiscard]] bool backlogged(const Node& node, const PlanRun& run, const FlowRange& range) const;
  [[nodiscard]] bool streams(const PlanRun& run, const FlowRange& range, size_t bytes) const;
  void lend_payload(const PlanRun& run, const ChunkRole& role, const FlowRange& outs,
                    uint32_t slice, size_t bytes);
  // `lent`: where the payload is instead of the slot; empty: in it.
  void send_slice(Node& node, PlanRun& run, const FlowRange& range, uint32_t slice,
                  const SlotRef& slot, size_t bytes, SourcePieces lent = {});
  void consume(Node& node, PlanRun& run, uint32_t in_flow, uint32_t slice);
  // What of the caller's arrays takes part in a combine.
  struct CombineSides {
    bool reads_own = false;
    size_t own_index = 0;
    bool stores = false;
  };
  void combine(const PlanRun& run, const ChunkRole& role, uint32_t slice, const CombineSides& sides,
               const CombineFinish& finish, std::byte* wire_out);
  void decode(const PlanRun& run, const ChunkRole& role, uint32_t slice, const std::byte* wire);
  // The chunk is this rank's to have in the end, and there is an array for it.
  [[nodiscard]] static bool keeps(const PlanRun& run, const ChunkRole& role);
  [[nodiscard]] SlicePlace place_of(const PlanRun& run, const ChunkRole& role,
                                    uint32_t slice) const;
  // Codec work that began at `begin_ns` (operation_trace.cc).
  void trace_slice(TraceRecorder& trace, TraceKind kind, int64_t begin_ns, const PlanRun& run,
                   const ChunkRole& role, uint32_t slice, size_t bytes) const;
  void trace_call(TraceRecorder& trace) const;
  void count_call(const Node& node, const Status& status);
  [[nodiscard]] uint32_t ranks() const;
  MessageHeader header(MessageKind kind, int to_rank) const;

  std::shared_ptr<Member> member_;
  CallRequest request_;
  CallDescriptor descriptor_;
  OnDone on_done_ = nullptr;
  void* context_ = nullptr;
  int64_t deadline_ns_ = 0;
  int64_t ping_ns_ = 0;
  bool pinged_ = false;
  bool begun_ = false;
  FlattenSite* site_ = nullptr;       // from begin() to the end of a flattened call
  OutlierPlaces outliers_;            // there, of this call's slices so far
  ObservedRows rows_;                 // and, of 16-bit types, what they hold before it is rounded
  std::vector<float> wide_;           // scratch of one slice of that
  ClipSite* clip_ = nullptr;          // and of one that learns a clip
  ClipFactors clips_;                 // there, once the site is this call's
  ClipReport reports_;                // of this call's slices so far
  LevelsSite* levels_ = nullptr;      // and of one for which levels are not known yet
  FeedbackSite* feedback_ = nullptr;  // and of one with +feedback
  float* owed_ = nullptr;             // there, once the site is this call's
  bool resting_ = false;              // until the site's calls before this one have ended

  PlanRun call_{false};
  PlanRun agreement_{true};           // on the scales of such a sum
  const SharedSums* sums_ = nullptr;  // of it
  std::vector<uint16_t> scales_;      // measured, then agreed on
  size_t measured_ = 0;               // values, where all share one scale
  std::vector<PeerState> peers_;
  // Data of ranks whose descriptor has not arrived yet; all messages of a call that rests.
  std::vector<InMessage> early_;
  std::string codec_text_;                        // what descriptor_.codec views
  std::vector<const std::byte*> wires_;           // scratch of one combine
  std::vector<SlicePart> parts_;                  // of one slice
  std::vector<std::span<const std::byte>> lent_;  // of one slice, where its payload lies
  std::vector<std::byte> decoded_;                // scratch of what goes past the cache
  StreamedPayload streamed_;                      // scratch of what goes past it to a far peer
  // Whether ranks touch each other's arrays in this call: they do if all of them say that they can.
  enum class Reaching : uint8_t { kNo, kAsked, kYes };
  Reaching reaching_ = Reaching::kNo;
  ArrayDoor* door_ = nullptr;             // that own arrays were opened by
  SlotRef fetched_;                       // scratch of one piece of every peer
  size_t summed_ = 0;                     // values of the own chunk that are everywhere
  bool added_ = false;                    // the next piece is summed, here
  uint32_t placing_ = 0;                  // peers that have its sums
  int64_t refused_since_ns_ = INT64_MAX;  // that the system lets nothing be touched
  bool gathers_ = false;                  // links take much at once
  uint32_t ready_peers_ = 0;
  uint32_t transits_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t bytes_received_ = 0;
  uint64_t bytes_streamed_ = 0;
  uint64_t bytes_placed_ = 0;
  uint64_t slices_sent_ = 0;

  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace tersum
