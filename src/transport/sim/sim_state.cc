#include "transport/sim/sim_state.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "transport/sim/sim_transport.h"

namespace tersum {
namespace {

constexpr int64_t kGreetAgainNs = 10'000'000;
constexpr int64_t kLatenciesHeldBack = 8;
constexpr int64_t kPiecesMax = 8;

}  // namespace

void SimState::at(int64_t time_ns, std::function<void()> action) {
  events.push({std::max(time_ns, clock.now_ns()), next_order_++, std::move(action)});
}

void SimState::after(int64_t duration_ns, std::function<void()> action) {
  at(clock.now_ns() + duration_ns, std::move(action));
}

void SimState::run_next() {
  TERSUM_CHECK(!events.empty());
  const Event next = events.top();
  events.pop();
  set_now(next.time_ns);
  next.action();
}

void SimState::depart(SimFlight flight) {
  Path& path = paths_[{flight.from, flight.to}];
  const size_t bytes = kMessageHeaderBytes + flight.header.payload_bytes;
  path.free_ns = std::max(path.free_ns, clock.now_ns());
  const double rate = bandwidth(flight.from, flight.to);
  if (rate > 0) path.free_ns += static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / rate);
  // The last of the pieces decides.
  const int64_t pieces = random.chance(options.split_probability) ? 2 + below(kPiecesMax - 1) : 1;
  int64_t travel_ns = 0;
  for (int64_t i = 0; i < pieces; ++i) travel_ns = std::max(travel_ns, latency_ns());
  if (random.chance(options.reorder_probability)) {
    travel_ns += below(kLatenciesHeldBack * options.latency_ns + 1);
  }
  int64_t arrival_ns = path.free_ns + travel_ns;
  if (options.reorder_probability <= 0) arrival_ns = std::max(arrival_ns, path.last_arrival_ns);
  path.last_arrival_ns = std::max(path.last_arrival_ns, arrival_ns);
  const uint64_t id = next_flight_++;
  flights_.emplace(id, std::move(flight));
  at(arrival_ns, [this, id] { arrive(id); });
}

SlotRef SimState::received(SimTransport& receiver, std::span<const std::byte> payload,
                           size_t bytes) {
  if (bytes == 0) return {};
  Result<SlotRef> slot = receiver.arena_->reserve(bytes);
  TERSUM_CHECK(slot.ok());
  const size_t sent = std::min(bytes, payload.size());
  if (sent > 0) std::memcpy(slot->bytes().data(), payload.data(), sent);
  std::memset(slot->bytes().data() + sent, 0, bytes - sent);
  return std::move(slot).value();
}

void SimState::arrive(uint64_t flight_id) {
  const auto item = flights_.find(flight_id);
  if (item == flights_.end()) return;  // lost with its sender
  SimFlight& flight = item->second;
  if (is_cut(flight.from, flight.to)) {
    flight.waits_for_heal = true;
    return;
  }
  const uint32_t bytes = flight.header.payload_bytes;
  SimTransport* receiver = node(flight.to);
  SimLink* link = receiver != nullptr ? receiver->link_by_number(flight.link) : nullptr;
  if (link != nullptr && !link->down_) {
    MessageHeader header = flight.header;
    std::span<const std::byte> payload(
        flight.slot ? flight.slot.bytes().data() : flight.detached.data(), bytes);
    std::vector<std::byte> altered;  // others may be sent the same bytes
    int times = 1;
    if (options.alter) {
      altered.assign(payload.begin(), payload.end());
      times = options.alter(header, altered);
      payload = altered;
    }
    for (int time = 0; time < times; ++time) {
      link->inbox_.push_back({header, received(*receiver, payload, header.payload_bytes)});
    }
  }
  SimTransport* sender = node(flight.from);
  SimLink* back = sender != nullptr ? sender->link_by_number(flight.link) : nullptr;
  flights_.erase(item);
  if (back != nullptr) {
    back->flying_bytes_ -= bytes;
    back->flush();
  }
}

int64_t SimState::quiet_ns(int from, int to) const {
  const auto path = paths_.find({from, to});
  return path == paths_.end() ? clock.now_ns()
                              : std::max(clock.now_ns(), path->second.last_arrival_ns);
}

void SimState::greet(const Greeting& greeting) {
  SimTransport* from = node(greeting.from);
  if (from == nullptr || from->live_link(greeting.to) != nullptr) return;
  SimTransport* to = node(greeting.to);
  const bool reachable =
      to != nullptr && !to->frozen_ && !from->frozen_ && !is_cut(greeting.from, greeting.to);
  if (reachable && to->live_link(greeting.from) == nullptr &&
      to->admits(greeting.group, greeting.token)) {
    const uint64_t number = next_link++;
    to->links_.push_back(std::make_unique<SimLink>(to, greeting.from, from->id_, number));
    to->news_.push_back(to->links_.back().get());
    from->links_.push_back(std::make_unique<SimLink>(from, greeting.to, to->id_, number));
    // The connecting side hears of it one way later.
    after(options.latency_ns, [this, index = greeting.from, number] {
      SimTransport* alive = node(index);
      if (alive != nullptr) alive->news_.push_back(alive->link_by_number(number));
    });
    return;
  }
  if (clock.now_ns() + kGreetAgainNs <= greeting.deadline_ns) {
    after(kGreetAgainNs + latency_ns(), [this, greeting] { greet(greeting); });
    return;
  }
  at(greeting.deadline_ns, [this, greeting] {
    SimTransport* alive = node(greeting.from);
    if (alive == nullptr || alive->live_link(greeting.to) != nullptr) return;
    alive->failures_.emplace_back(
        greeting.peer,
        Status(StatusCode::kTimeout, "could not connect to simulated node " +
                                         std::to_string(greeting.to) + " before the deadline"));
  });
}

void SimState::end_link_later(int from, int to, uint64_t link, int64_t delay_ns,
                              std::string reason) {
  const int64_t time_ns = std::max(quiet_ns(from, to), clock.now_ns() + latency_ns()) + delay_ns;
  at(time_ns, [this, from, to, link, reason = std::move(reason)]() mutable {
    if (is_cut(from, to)) {
      // The news does not pass either; it is looked at again until the cut has healed.
      return end_link_later(from, to, link, kGreetAgainNs, std::move(reason));
    }
    SimTransport* receiver = node(to);
    SimLink* end = receiver != nullptr ? receiver->link_by_number(link) : nullptr;
    if (end == nullptr || end->down_ || end->ending_) return;
    end->ending_ = true;
    end->end_reason_ = std::move(reason);
  });
}

void SimState::remove_node(int index, bool orderly) {
  nodes[static_cast<size_t>(index)] = nullptr;
  for (auto item = flights_.begin(); item != flights_.end();) {
    SimFlight& flight = item->second;
    if (flight.from != index) {
      ++item;
    } else if (orderly || random.chance(0.5)) {
      if (flight.slot) {
        const auto bytes = flight.slot.bytes().first(flight.header.payload_bytes);
        flight.detached.assign(bytes.begin(), bytes.end());
        flight.slot = SlotRef();
      }
      ++item;
    } else {
      item = flights_.erase(item);
    }
  }
}

void SimState::lose_links_between(int a, int b) {
  for (const auto& [here, there] : {std::pair(a, b), std::pair(b, a)}) {
    SimTransport* owner = node(here);
    SimLink* link = owner != nullptr ? owner->live_link(there) : nullptr;
    if (link == nullptr) continue;
    link->ending_ = true;
    link->end_reason_ = "simulated node " + std::to_string(there) + " was cut off for too long";
  }
  std::erase_if(flights_, [a, b](const auto& item) {
    return item.second.waits_for_heal &&
           std::minmax(item.second.from, item.second.to) == std::minmax(a, b);
  });
}

void SimState::resume_flights() {
  for (auto& [id, flight] : flights_) {
    if (!flight.waits_for_heal || is_cut(flight.from, flight.to)) continue;
    flight.waits_for_heal = false;
    after(latency_ns(), [this, id = id] { arrive(id); });
  }
}

int SimState::index_of(ProcessId id) const {
  const auto item = std::find(ids.begin(), ids.end(), id);
  TERSUM_CHECK(item != ids.end());
  return static_cast<int>(item - ids.begin());
}

}  // namespace tersum
