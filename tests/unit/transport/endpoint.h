// Endpoint: one process's transport with a sink that writes down what it hears, for tests.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "platform/system_clock.h"
#include "transport/host_transport.h"
#include "transport/transport.h"

namespace tersum::testing {

struct Received {
  MessageHeader header;
  std::vector<std::byte> payload;
};

// Copies every message; keeps the last `kept` holds, so that payloads are released late.
class Recorder : public TransportSink {
 public:
  void on_message(Link& link, InMessage message) override {
    messages.push_back({message.header, {message.payload.begin(), message.payload.end()}});
    if (kept > 0) {
      holds.push_back(std::move(message.hold));
      if (holds.size() > kept) holds.erase(holds.begin());
    }
    if (also_on_message) also_on_message(link, messages.back());
  }
  void on_link_down(Link& link, const Status& reason) override {
    EXPECT_TRUE(link.down());
    downs.push_back(reason);
  }
  void on_link_up(Link& link) override {
    EXPECT_FALSE(link.down());
    ups.push_back(&link);
  }
  void on_connect_failed(ProcessId peer, const Status& reason) override {
    failures.emplace_back(peer, reason);
  }

  size_t kept = 0;
  std::function<void(Link&, const Received&)> also_on_message;
  std::vector<Received> messages;
  std::vector<PayloadHold> holds;
  std::vector<Status> downs;
  std::vector<Link*> ups;
  std::vector<std::pair<ProcessId, Status>> failures;
};

inline const GroupToken kToken = {std::byte{1}, std::byte{2}, std::byte{3}};
inline constexpr uint64_t kGroup = 77;
inline constexpr int64_t kSecondNs = 1'000'000'000;

struct Endpoint {
  explicit Endpoint(const ListenOptions& listen = {}, bool shared_memory = true,
                    const Clock* injected = nullptr, PayloadStores stores = PayloadStores::kAuto,
                    ArrayReachPolicy reach = ArrayReachPolicy::kAuto) {
    HostTransportOptions options;
    options.clock = injected != nullptr ? injected : &clock;
    options.random = &random;
    options.shared_memory = shared_memory;
    options.stores = stores;
    options.reach = reach;
    options.arena_capacity_bytes = size_t{1} << 30;
    Result<std::unique_ptr<Transport>> made = make_host_transport(options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    transport = std::move(made).value();
    transport->set_sink(&sink);
    const Status listening = transport->listen(listen);
    EXPECT_TRUE(listening.ok()) << listening.to_string();
    transport->admit(kGroup, kToken);
  }
  ~Endpoint() { sink.holds.clear(); }

  void connect(const Endpoint& peer, TransportKind kind, int64_t patience_ns = 10 * kSecondNs) {
    transport->connect(peer.transport->address(), kGroup, kToken, kind,
                       clock.now_ns() + patience_ns);
  }

  SlotRef payload(std::span<const std::byte> bytes) {
    if (bytes.empty()) return {};
    Result<SlotRef> slot = transport->arena().reserve(bytes.size());
    EXPECT_TRUE(slot.ok());
    std::memcpy(slot->bytes().data(), bytes.data(), bytes.size());
    return std::move(slot).value();
  }

  SystemClock clock;
  SystemRandom random;
  Recorder sink;
  std::unique_ptr<Transport> transport;
};

inline MessageHeader data_header(uint32_t slice, size_t payload_bytes) {
  MessageHeader header;
  header.kind = MessageKind::kData;
  header.group = kGroup;
  header.slice = slice;
  header.payload_bytes = static_cast<uint32_t>(payload_bytes);
  return header;
}

// Polls all until `done` or 20 s have passed; whether it was done.
inline bool poll_until(const std::vector<Endpoint*>& endpoints, const std::function<bool()>& done,
                       int64_t patience_ns = 20 * kSecondNs) {
  const SystemClock clock;
  const int64_t deadline = clock.now_ns() + patience_ns;
  while (!done()) {
    if (clock.now_ns() > deadline) return false;
    for (Endpoint* endpoint : endpoints) endpoint->transport->poll();
  }
  return true;
}

// Links the two and returns the first one's link, or null after a failure.
inline Link* link_up(Endpoint& a, Endpoint& b, TransportKind kind) {
  a.connect(b, kind);
  const bool linked = poll_until({&a, &b}, [&] {
    return (!a.sink.ups.empty() && !b.sink.ups.empty()) || !a.sink.failures.empty();
  });
  EXPECT_TRUE(linked);
  if (!a.sink.failures.empty()) {
    ADD_FAILURE() << a.sink.failures[0].second.to_string();
    return nullptr;
  }
  return linked ? a.sink.ups[0] : nullptr;
}

}  // namespace tersum::testing
