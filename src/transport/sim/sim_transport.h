// SimTransport and SimLink: one process of a simulated network.
//
// Thread safety: none. Invariants: those of Transport and Link.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "transport/sim/sim_state.h"
#include "transport/transport.h"

namespace tersum {

class SimLink final : public Link {
 public:
  SimLink(SimTransport* owner, int peer_node, ProcessId peer, uint64_t number)
      : owner_(owner), peer_node_(peer_node), peer_(peer), number_(number) {}

  [[nodiscard]] ProcessId peer() const override { return peer_; }
  [[nodiscard]] std::string_view transport() const override { return "sim"; }
  void send(const MessageHeader& header, const SlotRef& payload) override;
  [[nodiscard]] bool gathers() const override;
  // Lent bytes are read as late as they may be, at settle().
  [[nodiscard]] bool borrows() const override { return true; }
  void send_lent(const MessageHeader& header, const SlotRef& payload, SourcePieces lent) override;
  void settle() override;
  void drop_landings() override;
  void flush() override;
  bool poll() override;
  [[nodiscard]] size_t backlog_bytes() const override { return backlog_bytes_; }
  [[nodiscard]] bool down() const override { return down_; }
  void close() override;

 private:
  friend class SimNetwork;
  friend class SimState;
  friend class SimTransport;
  struct Waiting {
    MessageHeader header;
    SlotRef slot;
    Landing landing = {};  // of the inbox's first: where half of it is already
  };
  void begin_landing();
  void go_down(const Status& reason);

  SimTransport* owner_;
  int peer_node_;
  ProcessId peer_;
  uint64_t number_;
  bool announced_ = false;  // on_link_up was called
  bool down_ = false;
  bool ending_ = false;  // goes down once the inbox is empty
  std::string end_reason_;
  struct Lent {
    SlotRef slot;
    std::vector<std::span<const std::byte>> pieces;
    size_t bytes;
  };

  std::vector<Lent> lent_;
  std::deque<Waiting> outbox_;  // waits for the window
  std::deque<Waiting> inbox_;   // arrived, not delivered
  size_t backlog_bytes_ = 0;
  size_t flying_bytes_ = 0;
};

class SimTransport final : public Transport {
 public:
  SimTransport(SimState* state, int index, ProcessId id, std::unique_ptr<Arena> arena)
      : state_(state), index_(index), id_(id), arena_(std::move(arena)) {}
  ~SimTransport() override;

  [[nodiscard]] ProcessId self() const override { return id_; }
  [[nodiscard]] Arena& arena() override { return *arena_; }
  void set_sink(TransportSink* sink) override { sink_ = sink; }
  void set_watch(CarrierWatch* watch) override { watch_ = watch; }
  Status listen(const ListenOptions& options) override;
  [[nodiscard]] std::string address() const override;
  [[nodiscard]] Result<ProcessId> parse_peer(std::string_view address) const override;
  [[nodiscard]] std::string host_of(std::string_view address) const override;
  [[nodiscard]] std::string cpus_of(std::string_view address) const override;
  [[nodiscard]] size_t cache_bytes_of(std::string_view address) const override;
  void admit(uint64_t group, const GroupToken& token) override;
  void forget(uint64_t group) override;
  void connect(std::string_view address, uint64_t group, const GroupToken& token,
               TransportKind kind, int64_t deadline_ns) override;
  [[nodiscard]] Link* find(ProcessId peer) override;
  bool poll() override;
  void wait(int64_t timeout_ns) override;
  void wake() override {}

 private:
  friend class SimLink;
  friend class SimNetwork;
  friend class SimState;

  [[nodiscard]] bool admits(uint64_t group, const GroupToken& token) const;
  SimLink* live_link(int peer_node);
  SimLink* link_by_number(uint64_t number);
  bool report();

  SimState* state_;
  int index_;
  ProcessId id_;
  std::unique_ptr<Arena> arena_;
  TransportSink* sink_ = nullptr;
  CarrierWatch* watch_ = nullptr;
  bool frozen_ = false;
  bool killed_ = false;
  std::vector<std::pair<uint64_t, GroupToken>> admitted_;
  std::vector<std::unique_ptr<SimLink>> links_;  // kept after their end
  std::deque<SimLink*> news_;                    // links to announce
  std::deque<std::pair<ProcessId, Status>> failures_;
};

}  // namespace tersum
