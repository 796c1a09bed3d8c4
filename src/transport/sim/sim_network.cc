#include "transport/sim/sim_network.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "transport/sim/sim_state.h"
#include "transport/sim/sim_transport.h"

namespace tersum {

SimNetwork::SimNetwork(uint64_t seed, const SimOptions& options)
    : state_(std::make_unique<SimState>(seed, options)) {
  TERSUM_CHECK(options.latency_ns >= 0 && options.jitter_ns >= 0);
  TERSUM_CHECK(options.messages_per_poll > 0);
  state_->set_now = [state = state_.get()](int64_t now_ns) { state->clock.now_ns_ = now_ns; };
}

SimNetwork::~SimNetwork() {
  for (const SimTransport* node : state_->nodes) TERSUM_CHECK(node == nullptr);
}

const SimClock& SimNetwork::clock() const { return state_->clock; }
SimRandom& SimNetwork::random() { return state_->random; }

std::unique_ptr<Transport> SimNetwork::make_node() {
  Result<std::unique_ptr<Arena>> arena = Arena::create(false, state_->options.arena_capacity_bytes);
  TERSUM_CHECK(arena.ok());
  const int index = static_cast<int>(state_->nodes.size());
  const ProcessId id{state_->random.next(), state_->random.next()};
  auto node = std::make_unique<SimTransport>(state_.get(), index, id, std::move(arena).value());
  state_->nodes.push_back(node.get());
  state_->ids.push_back(id);
  return node;
}

bool SimNetwork::advance_to_next_event() {
  if (state_->events.empty()) return false;
  state_->run_next();
  return true;
}

void SimNetwork::advance_by(int64_t duration_ns) {
  const int64_t until = state_->clock.now_ns() + duration_ns;
  while (next_event_ns() <= until) state_->run_next();
  state_->set_now(until);
}

int64_t SimNetwork::next_event_ns() const {
  return state_->events.empty() ? std::numeric_limits<int64_t>::max()
                                : state_->events.top().time_ns;
}

void SimNetwork::kill(int node) {
  SimTransport* victim = state_->node(node);
  if (victim == nullptr) return;
  victim->killed_ = true;
  for (const auto& link : victim->links_) {
    if (link->down_) continue;
    state_->end_link_later(node, link->peer_node_, link->number_, state_->options.death_notice_ns,
                           "simulated node " + std::to_string(node) + " died");
    // Its own end is silent: a dead process hears nothing.
    link->down_ = true;
    link->outbox_.clear();
    link->inbox_.clear();
  }
  state_->remove_node(node, false);
}

void SimNetwork::freeze(int node) {
  if (SimTransport* stopped = state_->node(node); stopped != nullptr) stopped->frozen_ = true;
}

void SimNetwork::thaw(int node) {
  SimTransport* stopped = state_->node(node);
  if (stopped == nullptr) return;
  stopped->frozen_ = false;
  for (const auto& link : stopped->links_) link->flush();
}

void SimNetwork::cut(int node, int other) {
  const std::pair<int, int> pair = std::minmax(node, other);
  if (!state_->cuts.insert(pair).second) return;
  const uint64_t number = ++state_->cut_count;
  state_->cut_numbers[pair] = number;
  state_->after(state_->options.cut_tolerance_ns, [state = state_.get(), pair, number] {
    if (state->is_cut(pair.first, pair.second) && state->cut_numbers[pair] == number) {
      state->lose_links_between(pair.first, pair.second);
    }
  });
}

void SimNetwork::heal(int node, int other) {
  state_->cuts.erase(std::minmax(node, other));
  state_->resume_flights();
}

void SimNetwork::set_bandwidth(int node, int other, double bytes_per_s) {
  TERSUM_CHECK(bytes_per_s > 0);
  state_->bandwidths[std::minmax(node, other)] = bytes_per_s;
}

}  // namespace tersum
