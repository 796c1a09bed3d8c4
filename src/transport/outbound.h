// Outbound: the connections that this process opens to others, until they are links or have failed.
//
// Thread safety: none (progress role).
// Invariants: one attempt per peer at a time, however many groups ask for it. A refused or dropped
// connection is tried again, with growing pauses, until the last deadline that was asked for; so a
// peer that has not admitted the group yet is no error.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tersum/options.h"
#include "transport/handshake_socket.h"
#include "transport/peer_address.h"
#include "transport/transport.h"

namespace tersum {

class Outbound {
 public:
  struct Request {
    PeerAddress address;
    uint64_t group = 0;
    GroupToken token{};
    TransportKind kind = TransportKind::kAuto;
    int64_t deadline_ns = 0;
  };
  struct Failure {
    ProcessId peer;
    Status reason;
  };
  // Decides whether to wait for a peer that is already connecting to us.
  class Policy {
   public:
    virtual ~Policy() = default;
    virtual bool should_wait(ProcessId peer) = 0;
  };

  Outbound(const HandshakeContext* context, Policy* policy) : context_(context), policy_(policy) {}

  // `no_shared_memory` is the reason why there is none with this peer; empty if there can be.
  void start(Request request, std::string no_shared_memory, int tcp_streams);

  // Connects, reads, answers; appends what became links and what failed for good. True if moved.
  bool poll(std::vector<Established>& links, std::vector<Failure>& failures);

  // The peer may already have read a greeting of ours that would lead to a link.
  [[nodiscard]] bool greeted(ProcessId peer) const;
  // Closes what is under way to `peer`; tries again later unless a link exists by then.
  void yield(ProcessId peer);
  // Forgets the attempt: there is a link.
  void cancel(ProcessId peer) { attempts_.erase(peer); }
  [[nodiscard]] int64_t next_deadline_ns() const;

 private:
  enum class Stage : uint8_t { kConnecting, kGreeted, kWelcomed };
  struct Stream {
    std::unique_ptr<HandshakeSocket> socket;
    Stage stage = Stage::kConnecting;
  };
  struct Attempt {
    PeerAddress address;
    std::vector<Request> requests;  // each with a proof of its own; tried in turn
    std::string no_shared_memory;
    int tcp_streams = 1;
    size_t tries = 0;
    bool avoid_shared_memory = false;  // it failed before the peer could answer
    std::string last_error = "no answer yet";
    int64_t started_ns = 0;
    int64_t retry_ns = 0;
    int64_t pause_ns = 0;
    // The try under way; no streams between tries.
    uint64_t id = 0;
    Carrier carrier = Carrier::kTcp;
    std::vector<Stream> streams;
    SharedMemory own_mailbox;

    [[nodiscard]] const Request& request() const { return requests[tries % requests.size()]; }
  };

  // A status that is not ok ends the attempt for good.
  Status advance(ProcessId peer, Attempt& attempt, int64_t now, std::vector<Established>& links,
                 bool* moved);
  Status begin_try(Attempt& attempt);
  Status open_streams(Attempt& attempt);
  void end_try(Attempt& attempt, std::string why);
  Status advance_stream(Attempt& attempt, size_t index);
  HandshakeFrame frame_for(const Attempt& attempt, HandshakeKind kind, size_t index) const;
  bool establish(Attempt& attempt, const HandshakeFrame& welcome, std::vector<Established>& links);

  const HandshakeContext* context_;
  Policy* policy_;
  std::map<ProcessId, Attempt> attempts_;
  HandshakeFrame last_welcome_;
};

}  // namespace tersum
