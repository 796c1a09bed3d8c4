// Node: the engine of one process: its transport, its groups, its operations in flight.
//
// Thread safety: submit(), post() and wake() from any thread; everything else belongs to the holder
// of the progress role (see progress.h). The node never waits: step() does one round of what is
// possible. A simulation steps many nodes in one thread on a virtual clock. Invariants: messages
// are matched to calls by (group, rank, call), never by arrival; those of a call that has not begun
// here are parked, within a bound; those of a call that is over are dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "runtime/member.h"
#include "runtime/operation.h"
#include "runtime/trace_recorder.h"
#include "tersum/status.h"
#include "transport/transport.h"

namespace tersum {

// Call number of a notice that concerns the group, not one call.
inline constexpr uint64_t kNoCall = ~uint64_t{0};

class Node final : public TransportSink {
 public:
  Node(const Clock& clock, std::unique_ptr<Transport> transport);
  ~Node() override;

  // --- any thread ---
  // Hands a prepared operation over; it begins in the next round. Wakes a sleeping role holder.
  void submit(std::shared_ptr<Operation> operation);
  // Runs `task` in the next round, on the role holder's thread.
  void post(std::function<void(Node&)> task);
  // Whether operations or tasks were handed over that have not ended: somebody has to make
  // progress.
  [[nodiscard]] bool busy() const { return pending_.load(std::memory_order_acquire) > 0; }
  void wake() { transport_->wake(); }
  [[nodiscard]] const Clock& clock() const { return clock_; }
  // What this node does is recorded from now on; before listen(), and `trace` outlives the node.
  void set_trace(TraceRecorder* trace);
  // Null unless somebody traces.
  [[nodiscard]] TraceRecorder* trace() const { return trace_; }

  // --- progress role ---
  // One round: takes what was submitted, polls the transport, advances operations. True if anything
  // moved.
  bool step();
  // Nanoseconds until the next deadline, at most `limit_ns`; how long a sleep may last.
  [[nodiscard]] int64_t sleep_ns(int64_t limit_ns) const;
  void sleep(int64_t timeout_ns) {
    const int64_t begin_ns = trace_start(trace_);
    transport_->wait(timeout_ns);
    if (trace_ != nullptr) trace_->record_sleep(begin_ns);
  }
  // Bytes that still have to leave for peers, over all links.
  [[nodiscard]] size_t backlog_bytes() const;
  // Operations and tasks that have ended so far: tells that what a waiter waits for may be done.
  [[nodiscard]] uint64_t ended() const { return ended_; }

  void register_member(const std::shared_ptr<Member>& member);
  // Says goodbye to the group's ranks, fails what is in flight, forgets the group and releases
  // links that no other member uses.
  void unregister_member(const std::shared_ptr<Member>& member, const Status& reason);
  void poison(Member& member, const Status& cause);
  // Poisons, and ends what is in flight in the next round: the group has come to its end.
  void doom(Member& member, const Status& cause);
  // Ends everything in flight, poisons the group here and on its other ranks.
  void abort_member(Member& member, const Status& reason);
  [[nodiscard]] Transport& transport() { return *transport_; }
  // Of each group by itself: this host has a CPU for each of its ranks here, as far as they say.
  [[nodiscard]] bool has_cpu_each() const;
  [[nodiscard]] bool has_group(uint64_t group) const;
  // Why the last attempt to connect failed, until the next one is begun.
  [[nodiscard]] Status connect_failure(ProcessId peer) const;
  void forget_connect_failure(ProcessId peer);

  // For operations.
  Result<SlotRef> reserve(size_t bytes) { return transport_->arena().reserve(bytes); }
  // `lent` not empty: the payload's bytes are still there, and stay there until settle_lent(); only
  // where that rank borrows.
  void send(Member& member, const MessageHeader& header, const SlotRef& payload,
            SourcePieces lent = {});
  [[nodiscard]] static bool borrows(const Member& member, int rank) {
    const Link* const link = member.places[static_cast<size_t>(rank)].link;
    return link != nullptr && link->borrows();
  }
  // How that rank's arrays are touched where they are; null: in no way.
  [[nodiscard]] static ArrayReach* reach(const Member& member, int rank) {
    Link* const link = member.places[static_cast<size_t>(rank)].link;
    return link == nullptr ? nullptr : link->reach();
  }
  // Whether others could touch an array of this process: not all that is mapped is memory.
  [[nodiscard]] bool finds(const void* array, size_t bytes) const;
  // From here on nothing that was sent lies in memory that is not the process's arena. Whoever has
  // lent something calls it before anything else can happen.
  void settle_lent();
  // From here on nothing that arrives is put into callers' arrays, but by operations.
  void drop_landings();
  [[nodiscard]] size_t link_backlog_bytes(const Member& member, int rank) const;
  // Whether the links of the group, of which it has some, all take much at once rather than soon.
  [[nodiscard]] static bool gathers(const Member& member);
  // Whether payloads for that rank are better written past the caches.
  [[nodiscard]] static bool far(const Member& member, int rank) {
    const Link* const link = member.places[static_cast<size_t>(rank)].link;
    return link != nullptr && link->far();
  }
  // Budget for payloads that travel before the receiver is ready, per link.
  [[nodiscard]] bool eager_room(const Member& member, int rank, size_t bytes) const;
  void take_eager(const Member& member, int rank, size_t bytes);
  void give_back_eager(const Member& member, int rank, size_t bytes);
  void ping(Member& member, int rank);
  // Descriptors of this call that were handed on before it began here; forgets them.
  static uint32_t take_early_transits(Member& member, uint64_t call);
  // Tells every other rank that `call` (kNoCall: everything) ended with `status`.
  void cancel_all(Member& member, uint64_t call, const Status& status, bool poisons);
  [[nodiscard]] bool heard_since(const Member& member, int rank, int64_t since_ns) const;
  void operation_ended(Operation& operation);

  // TransportSink.
  void on_message(Link& link, InMessage message) override;
  void find_landing(Link& link, const MessageHeader& header, Landing& landing) override;
  void on_link_down(Link& link, const Status& reason) override;
  void on_link_up(Link& link) override;
  void on_connect_failed(ProcessId peer, const Status& reason) override;

 private:
  struct LinkState {
    Link* link = nullptr;
    ProcessId peer;
    int64_t last_heard_ns = 0;
    size_t eager_bytes = 0;
    size_t parked_bytes = 0;
    uint32_t members = 0;  // members that use it
    bool dirty = false;    // something was queued since the last flush
    bool lent = false;     // of that, something that is to be settled
  };
  struct Submission {
    std::shared_ptr<Operation> operation;
    std::function<void(Node&)> task;
  };

  bool drain_submissions();
  void begin_operation(const std::shared_ptr<Operation>& operation);
  bool advance_operations();
  bool advance_member(Member& member);
  bool deliver_local();
  void flush_links();
  void route(InMessage message, LinkState* from);
  void trace_arrival(const MessageHeader& header);
  void park_unknown(InMessage message);
  void relay(Member& member, const InMessage& message);
  void count_transit(Member& member, uint64_t call);
  void hand_over(Member& member, int neighbour, const MessageHeader& header, const SlotRef& payload,
                 SourcePieces lent);
  void route_to_member(Member& member, InMessage message, LinkState* from);
  void on_idle_cancel(Member& member, const InMessage& message);
  void on_goodbye(const MessageHeader& header);
  void adopt_parked(Member& member, Operation& operation);
  void adopt_unknown(Member& member);
  [[nodiscard]] bool is_over(const Member& member, uint64_t call) const;
  [[nodiscard]] Member* find_member(uint64_t group, int rank) const;
  LinkState* find_link(const Link* link);
  [[nodiscard]] const LinkState* find_link(const Link* link) const;

  const Clock& clock_;
  std::unique_ptr<Transport> transport_;
  TraceRecorder* trace_ = nullptr;
  int64_t now_ns_ = 0;

  std::mutex submissions_mutex_;
  std::vector<Submission> submissions_;
  std::vector<Submission> taken_;
  std::atomic<int64_t> pending_{0};

  std::vector<std::shared_ptr<Member>> members_;
  std::vector<LinkState> links_;
  std::vector<InMessage> local_messages_;
  std::vector<InMessage> local_batch_;
  std::vector<InMessage> unknown_;                // for groups not known here yet
  std::vector<std::pair<uint64_t, int>> closed_;  // (group, rank) that were here
  std::vector<std::pair<ProcessId, Status>> connect_failures_;
  uint64_t ended_ = 0;
  size_t turn_ = 0;  // rounds of operations so far
  bool any_dirty_ = false;
  bool any_lent_ = false;
  bool any_landing_ = false;  // since the last time that all were dropped
};

}  // namespace tersum
