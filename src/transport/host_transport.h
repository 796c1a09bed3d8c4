// HostTransport: links between the processes of real hosts: shared memory where two can share it,
// TCP elsewhere.
//
// Thread safety and invariants: those of Transport. Everything that was received (slots, holds)
// must have been let go before the transport ends.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "tersum/status.h"
#include "transport/array_reach_policy.h"
#include "transport/payload_stores.h"
#include "transport/transport.h"

namespace tersum {

struct HostTransportOptions {
  // Both must outlive the transport.
  const Clock* clock = nullptr;
  Random* random = nullptr;
  // Offer shared memory to processes of the same host and network namespace.
  bool shared_memory = true;
  // Address space for payloads; memory is taken as it is used.
  size_t arena_capacity_bytes = size_t{16} << 30;
  // TCP connections per peer where neither this nor ListenOptions says otherwise (0).
  int tcp_streams = 0;
  PayloadStores stores = PayloadStores::kAuto;
  ArrayReachPolicy reach = ArrayReachPolicy::kAuto;
};

// kSystem when the operating system refuses memory or descriptors.
Result<std::unique_ptr<Transport>> make_host_transport(const HostTransportOptions& options);

}  // namespace tersum
