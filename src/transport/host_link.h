// HostLink: what HostTransport needs of its links beyond Link, and what they need of it.
//
// Thread safety: none (progress role).
// Invariants: a link reports to the sink only from poll(). After close() or on_link_down it may
// linger (its peer may still read memory or data of this process) until retired().
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/clock.h"
#include "platform/poller.h"
#include "transport/arena.h"
#include "transport/array_door.h"
#include "transport/link.h"
#include "transport/payload_stores.h"
#include "transport/transport.h"

namespace tersum {

struct LinkContext {
  Arena* arena = nullptr;
  Poller* poller = nullptr;
  const Clock* clock = nullptr;
  TransportSink* const* sink = nullptr;
  CarrierWatch* watch = nullptr;  // null: nobody wants to know
  PayloadStores stores = PayloadStores::kAuto;
  ArrayDoor* door = nullptr;  // null: nobody's memory is reached
};

class HostLink : public Link {
 public:
  // Before the process sleeps: pushes out what can go, asks the peer to wake us; false when there
  // is something to do at once. finish_sleep() follows in either case.
  virtual bool prepare_sleep() = 0;
  virtual void finish_sleep() = 0;

  // When poll() must be called even if nothing becomes ready.
  [[nodiscard]] virtual int64_t next_deadline_ns() const {
    return std::numeric_limits<int64_t>::max();
  }
  // Some output waits for the peer to take what is before it.
  [[nodiscard]] virtual bool blocked() const = 0;

  // Whether input shows only in the poller, not in memory that poll() looks at.
  [[nodiscard]] virtual bool needs_poller() const = 0;

  // The link has ended and neither side needs anything of it any more.
  [[nodiscard]] virtual bool retired() const = 0;
};

// "5b1e0c…" (32 digits): how messages name a process that has no rank yet.
std::string process_name(const ProcessId& id);

}  // namespace tersum
