// PeerAddress: what a process publishes so that others can connect to it.
//
// Thread safety: values. The text form is "tersum:1;id=<32 hex digits>;boot=…;net=…;tcp=host:port;
// unix=name;cpus=3;cache=33554432"; unknown fields are skipped, so that later versions can add
// some.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tersum/status.h"
#include "transport/link.h"

namespace tersum {

struct PeerAddress {
  ProcessId id;
  std::string boot;
  std::string network;
  std::string tcp;
  std::string unix_name;   // empty: this process shares no memory
  std::string cpus;        // on which it may run (own_cpus); empty: it does not say
  size_t cache_bytes = 0;  // of its last-level cache; 0: it does not say

  [[nodiscard]] std::string to_string() const;
};

// kProtocol when the text is no address.
Result<PeerAddress> parse_peer_address(std::string_view text);

// Why two processes cannot share memory; empty when they can.
std::string why_no_shared_memory(const PeerAddress& own, const PeerAddress& peer);

}  // namespace tersum
