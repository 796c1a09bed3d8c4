// Inbound: listeners, and the connections that others open to this process, until they are links.
//
// Thread safety: none (progress role).
// Invariants: at most kStrangersMax connections that have not proved a token are kept, each for at
// most kSilenceNs; the oldest gives way to a new one. A connection that is wrong in any way is
// closed and has no other effect.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/handshake_socket.h"
#include "transport/transport.h"

namespace tersum {

class Inbound {
 public:
  // Decides whether a peer that has proved its token may link now.
  class Policy {
   public:
    virtual ~Policy() = default;
    virtual bool may_accept(ProcessId peer) = 0;
  };

  Inbound(const HandshakeContext* context, Policy* policy) : context_(context), policy_(policy) {}

  void add_listener(UniqueFd fd, Carrier carrier);
  void admit(uint64_t group, const GroupToken& token);
  void forget(uint64_t group);

  // Accepts, reads, answers; appends what became links. True if anything moved.
  bool poll(std::vector<Established>& links);
  // A peer's connections are on the way to become a link.
  [[nodiscard]] bool expects(ProcessId peer) const { return assemblies_.contains(peer); }
  void drop(ProcessId peer) { assemblies_.erase(peer); }
  // Something was announced that poll() has not looked at yet.
  [[nodiscard]] bool ready() const;
  [[nodiscard]] int64_t next_deadline_ns() const;

 private:
  struct Listener {
    UniqueFd fd;
    Carrier carrier = Carrier::kTcp;
    PollFlags flags;
    int64_t retry_ns = 0;  // after running out of descriptors
  };
  struct Stranger {
    std::unique_ptr<HandshakeSocket> socket;
    Carrier carrier = Carrier::kTcp;
    int64_t deadline_ns = 0;
  };
  // The connections of one attempt of one peer to link.
  struct Assembly {
    uint64_t attempt = 0;
    Carrier carrier = Carrier::kTcp;
    std::vector<std::unique_ptr<HandshakeSocket>> streams;
    size_t present = 0;
    bool welcomed = false;
    int64_t deadline_ns = 0;
    SharedMemory own_mailbox;
  };
  enum class Verdict : uint8_t { kKeep, kDrop };

  bool accept_from(Listener& listener);
  bool poll_strangers();
  Verdict examine(Stranger& stranger);
  bool is_admitted(const HandshakeFrame& hello) const;
  void assemble(std::unique_ptr<HandshakeSocket> socket, const HandshakeFrame& hello);
  bool welcome(ProcessId peer, Assembly& assembly);
  bool poll_assemblies(std::vector<Established>& links);
  bool establish(ProcessId peer, Assembly& assembly, const HandshakeFrame& confirm,
                 std::vector<Established>& links);

  const HandshakeContext* context_;
  Policy* policy_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<Stranger> strangers_;  // oldest first
  std::map<ProcessId, Assembly> assemblies_;
  std::vector<std::pair<uint64_t, GroupToken>> admitted_;
};

}  // namespace tersum
