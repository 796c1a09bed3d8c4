#include "plan/cost_tally.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/collective_rules.h"
#include "plan/flow_window.h"

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

// As the executor cuts chunks (compiled_plan.cc): sixteen slices, but none below 8 KiB.
constexpr double kSlicesPerChunk = 16;
constexpr double kSliceBytesMin = 8 * 1024;

double seconds(double bytes, double rate) { return rate > 0 ? bytes / rate : 0; }

}  // namespace

CostTally::CostTally(const CostRequest& request, PlanKind plan)
    : request_(request),
      topology_(*request.topology),
      size_(topology_.host_of.size()),
      flow_bytes_max_(flow_bytes_max(request.topology, request.collective, plan)),
      pair_bytes_(size_ * size_, 0),
      messages_(size_, 0),
      codec_s_(size_, 0),
      transport_s_(size_, 0),
      link_bytes_(topology_.links.size(), 0),
      link_flows_(topology_.links.size(), 0) {}

void CostTally::set_slices(double value_bytes) {
  wire_bytes_ = value_bytes * request_.codec.wire_ratio;
  const double wanted = std::max(wire_bytes_ / kSlicesPerChunk, kSliceBytesMin);
  slice_bytes_ = std::min({wanted, static_cast<double>(request_.machine.slice_bytes), wire_bytes_});
  if (topology_.host_count() > 1) {
    const double most = static_cast<double>(request_.machine.slice_values);
    slice_bytes_ =
        std::min(slice_bytes_, most * request_.element_bytes * request_.codec.wire_ratio);
  }
  if (flow_bytes_max_ != kFlowUnlimited) {
    slice_bytes_ = std::min(slice_bytes_, static_cast<double>(flow_bytes_max_) / 2);
  }
  slices_ = std::ceil(wire_bytes_ / slice_bytes_);
  slice_values_ = value_bytes * slice_bytes_ / wire_bytes_;
  slowest_s_per_byte_ = 0;
  burst_bytes_ = 0;
}

double CostTally::combine_s(double value_bytes, int peers) const {
  const CodecRates& codec = request_.codec;
  return seconds(value_bytes, codec.combine) + (peers - 1) * seconds(value_bytes, codec.add);
}

void CostTally::count_message(int from, int to) {
  pair_bytes_[at(from) * size_ + at(to)] += wire_bytes_;
  messages_[at(from)] += slices_;
  messages_[at(to)] += slices_;
}

void CostTally::add_chunk(const ChunkTree& tree, double value_bytes, bool follow) {
  if (value_bytes <= 0) return;
  set_slices(value_bytes);
  const CodecRates& codec = request_.codec;
  const bool sums = reduces(request_.collective);
  const bool hands_out = request_.collective != Collective::kReduceScatter;
  children_.assign(size_, 0);
  for (size_t rank = 0; sums && rank < size_; ++rank) {
    const int parent = tree.parent[rank];
    if (parent < 0) continue;
    ++children_[at(parent)];
    count_message(static_cast<int>(rank), parent);
  }
  for (size_t rank = 0; rank < size_; ++rank) {
    const bool gives = sums ? tree.parent[rank] >= 0 : static_cast<int>(rank) == tree.owner;
    if (children_[rank] > 0) {
      codec_s_[rank] += combine_s(value_bytes, children_[rank]);
    } else if (gives) {
      codec_s_[rank] += seconds(value_bytes, codec.encode);
    }
    if (!hands_out || tree.source[rank] < 0) continue;
    codec_s_[rank] += seconds(value_bytes, codec.decode);
    count_message(tree.source[rank], static_cast<int>(rank));
  }
  if (follow) follow_chunk(tree, hands_out);
}

// When one slice has come over one more edge and been worked on there.
CostTally::Reached CostTally::after_hop(const Reached& before, int from, int to, double work_s) {
  const MachineRates& machine = request_.machine;
  double s_per_byte = 0;
  double latency_s = machine.local_latency_s;
  double core_s_per_byte = machine.read_s_per_byte;
  double burst_bytes = 0;
  if (topology_.host_of[at(from)] != topology_.host_of[at(to)]) {
    const PathSpeed path = topology_.path_speed(from, to);
    s_per_byte = 1 / (path.bytes_per_s * machine.goodput);
    latency_s = path.latency_s;
    core_s_per_byte = machine.send_s_per_byte + machine.receive_s_per_byte;
    burst_bytes = path.burst_bytes * machine.goodput;
  }
  if (s_per_byte > slowest_s_per_byte_) {
    slowest_s_per_byte_ = s_per_byte;
    burst_bytes_ = burst_bytes;
  }
  const double still = latency_s + 2 * machine.message_s + slice_bytes_ * core_s_per_byte + work_s;
  const double sending = std::max(slice_bytes_ - burst_bytes, 0.0) * s_per_byte;
  return {before.time_s + still + sending, before.still_s + still, before.hops + 1};
}

void CostTally::follow_reduce(const ChunkTree& tree) {
  order_.measure(tree.parent);
  for (size_t i = order_.outwards().size(); i-- > 1;) {
    const int rank = order_.outwards()[i];
    const int parent = tree.parent[at(rank)];
    Reached& own = reached_[at(rank)];
    if (children_[at(rank)] == 0) {
      own.time_s = own.still_s = seconds(slice_values_, request_.codec.encode);
    }
    const Reached there =
        after_hop(own, rank, parent, combine_s(slice_values_, children_[at(parent)]));
    if (there.time_s > reached_[at(parent)].time_s) reached_[at(parent)] = there;
  }
  // Only the owner's is the start of what is handed out.
  const Reached owner = reached_[at(tree.owner)];
  reached_.assign(size_, {});
  reached_[at(tree.owner)] = owner;
}

void CostTally::follow_chunk(const ChunkTree& tree, bool hands_out) {
  reached_.assign(size_, {});
  if (reduces(request_.collective)) follow_reduce(tree);
  if (hands_out) {
    order_.measure(tree.source);
    const double decode_slice = seconds(slice_values_, request_.codec.decode);
    for (const int rank : order_.outwards()) {
      const int source = tree.source[at(rank)];
      if (source < 0) continue;
      reached_[at(rank)] = after_hop(reached_[at(source)], source, rank, decode_slice);
    }
  }
  keep_longest(
      *std::max_element(reached_.begin(), reached_.end(),
                        [](const Reached& a, const Reached& b) { return a.time_s < b.time_s; }));
}

void CostTally::keep_longest(const Reached& reached) {
  const double waiting_bytes = wire_bytes_ - std::max(slice_bytes_, burst_bytes_);
  const double alone = reached.time_s + std::max(waiting_bytes, 0.0) * slowest_s_per_byte_;
  if (alone <= longest_.time_s) return;
  const double hop_s = reached.still_s / std::max(reached.hops, 1);
  const double ends_s = hop_s + seconds(slice_values_, request_.codec.encode) +
                        seconds(slice_values_, request_.codec.decode);
  longest_ = {alone, reached.hops, hop_s, slices_, ends_s, burst_bytes_ > slice_bytes_};
}

void CostTally::add_exchange() {
  if (size_ == 1 || request_.value_bytes <= 0) return;
  set_slices(request_.value_bytes);
  const auto size = static_cast<int>(size_);
  Reached slowest;
  for (int from = 0; from < size; ++from) {
    codec_s_[at(from)] += seconds(request_.value_bytes, request_.codec.encode) +
                          combine_s(request_.value_bytes, size);
    for (int to = 0; to < size; ++to) {
      if (to == from) continue;
      count_message(from, to);
      const Reached there = after_hop({}, from, to, combine_s(slice_values_, size));
      if (there.time_s > slowest.time_s) slowest = there;
    }
  }
  keep_longest(slowest);
}

void CostTally::settle() {
  const MachineRates& machine = request_.machine;
  for (size_t rank = 0; rank < size_; ++rank)
    transport_s_[rank] = messages_[rank] * machine.message_s;
  for (size_t from = 0; from < size_; ++from) {
    for (size_t to = 0; to < size_; ++to) {
      const double bytes = pair_bytes_[from * size_ + to];
      if (bytes <= 0) continue;
      const int host_from = topology_.host_of[from];
      const int host_to = topology_.host_of[to];
      if (host_from == host_to) {
        transport_s_[to] += bytes * machine.read_s_per_byte;
        continue;
      }
      transport_s_[from] += bytes * machine.send_s_per_byte;
      transport_s_[to] += bytes * machine.receive_s_per_byte;
      for (const size_t link : topology_.path(host_from, host_to)) {
        link_bytes_[link] += bytes;
        ++link_flows_[link];
      }
    }
  }
}

double CostTally::wire_s() const {
  double busiest = 0;
  for (size_t i = 0; i < link_bytes_.size(); ++i) {
    const double rate = topology_.links[i].bytes_per_s * request_.machine.goodput;
    busiest = std::max(busiest, link_bytes_[i] / rate);
  }
  return busiest;
}

double CostTally::ports_s() const {
  const MachineRates& machine = request_.machine;
  const bool is_limited = flow_bytes_max_ != kFlowUnlimited;
  const double of_flow = is_limited ? machine.limited_port_share : machine.port_share;
  double longest = 0;
  for (size_t i = 0; i < link_bytes_.size(); ++i) {
    const TopologyLink& link = topology_.links[i];
    const bool is_port = std::max(link.from, link.to) >= topology_.host_count();
    const int flows = std::min(link_flows_[i], machine.port_flows_max);
    const double share = is_port && flows > 1 ? of_flow * (flows - 1) : 0;
    longest =
        std::max(longest, (1 + share) * link_bytes_[i] / (link.bytes_per_s * machine.goodput));
  }
  return longest - wire_s();
}

// A rank has one thread; ranks share their machine's cores.
double CostTally::cpu_s() const {
  const double cores = std::max(request_.machine.cores, 1);
  double busiest = 0;
  double all = 0;
  for (const std::vector<int>& ranks : topology_.ranks_of) {
    double sum = 0;
    for (const int rank : ranks) {
      const double work = codec_s_[at(rank)] + transport_s_[at(rank)];
      busiest = std::max(busiest, work);
      sum += work;
    }
    all += sum;
    busiest = std::max(busiest, sum / cores);
  }
  return request_.machine.one_machine ? std::max(busiest, all / cores) : busiest;
}

double CostTally::memory_s() const {
  size_t together = 0;
  for (const std::vector<int>& ranks : topology_.ranks_of) {
    together = std::max(together, ranks.size());
  }
  if (request_.machine.one_machine) together = size_;
  const double bytes = static_cast<double>(together) * request_.value_bytes;
  if (bytes <= request_.machine.cache_bytes) return 0;
  return seconds(bytes, request_.machine.memory_bytes_per_s);
}

double CostTally::messages_max() const {
  return *std::max_element(messages_.begin(), messages_.end());
}

double CostTally::codec_share() const {
  const double codec = std::accumulate(codec_s_.begin(), codec_s_.end(), 0.0);
  const double all = codec + std::accumulate(transport_s_.begin(), transport_s_.end(), 0.0);
  return all > 0 ? codec / all : 0;
}

}  // namespace tersum
