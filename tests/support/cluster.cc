#include "support/cluster.h"

#include <algorithm>
#include <random>
#include <thread>

#include "base/check.h"
#include "plan/host_topology.h"
#include "platform/system_clock.h"
#include "runtime/rendezvous.h"
#include "support/memory_store.h"
#include "transport/host_transport.h"

namespace tersum::testing {
namespace {

constexpr GroupToken kToken{std::byte{1}, std::byte{2}, std::byte{3}};
constexpr uint64_t kGroup = 77;

const SystemClock& real_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace

Cluster::Cluster(const ClusterOptions& options) : options_(options) {
  if (options_.kind == ClusterKind::kLocal) options_.ranks_per_process = options_.size;
  if (options_.kind == ClusterKind::kTcp) options_.communicator.transport = TransportKind::kTcp;
  if (options_.kind == ClusterKind::kShm) {
    options_.communicator.transport = TransportKind::kSharedMemory;
  }
  communicators_.resize(static_cast<size_t>(options_.size));
  if (options_.kind == ClusterKind::kSim) {
    make_sim_processes();
    meet_by_stepping();
  } else {
    make_host_processes();
    meet_with_threads();
  }
}

Cluster::~Cluster() {
  for (Communicator& communicator : communicators_) communicator.close();
  communicators_.clear();
  processes_.clear();
}

int Cluster::process_of(int rank) const { return rank / options_.ranks_per_process; }

void Cluster::make_host_processes() {
  static SystemRandom random;
  for (int i = 0; i <= process_of(options_.size - 1); ++i) {
    HostTransportOptions transport;
    transport.clock = &real_clock();
    transport.random = &random;
    transport.stores = options_.stores;
    transport.reach = i == options_.unreached_process ? ArrayReachPolicy::kOff : options_.reach;
    processes_.push_back(std::make_shared<Progress>(
        std::make_unique<Node>(real_clock(), std::move(make_host_transport(transport)).value())));
  }
  trace_processes(real_clock());
}

void Cluster::trace_processes(const Clock& clock) {
  if (options_.trace_events == 0) return;
  for (const auto& process : processes_) {
    traces_.push_back(std::make_unique<TraceRecorder>(clock, options_.trace_events));
    process->node().set_trace(traces_.back().get());
  }
}

void Cluster::make_sim_processes() {
  network_ = std::make_unique<SimNetwork>(options_.seed, options_.network);
  for (int i = 0; i <= process_of(options_.size - 1); ++i) {
    processes_.push_back(std::make_shared<Progress>(
        std::make_unique<Node>(network_->clock(), network_->make_node()), Progress::Thread::kNone));
  }
  trace_processes(network_->clock());
}

void Cluster::meet_with_threads() {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options_.size; ++rank) {
    threads.emplace_back([&, rank] {
      auto made = create_on(processes_[static_cast<size_t>(process_of(rank))], rank, options_.size,
                            store, options_.communicator, "test");
      TERSUM_CHECK(made.ok());
      at(rank) = made.value();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The rendezvous without a store: everybody lives in this thread.
void Cluster::meet_by_stepping() {
  std::vector<std::string> addresses;
  std::vector<ProcessId> ids;
  for (const auto& process : processes_) {
    Transport& transport = process->node().transport();
    TERSUM_CHECK(transport.listen({}).ok());
    transport.admit(kGroup, kToken);
    addresses.push_back(transport.address());
    ids.push_back(transport.self());
  }
  for (size_t i = 0; i < processes_.size(); ++i) {
    for (size_t j = 0; j < processes_.size(); ++j) {
      if (ids[i] < ids[j]) {
        processes_[i]->node().transport().connect(addresses[j], kGroup, kToken,
                                                  TransportKind::kAuto, INT64_MAX);
      }
    }
  }
  const auto linked = [&] {
    for (const auto& process : processes_) {
      for (const ProcessId id : ids) {
        if (id == process->node().transport().self()) continue;
        if (process->node().transport().find(id) == nullptr) return false;
      }
    }
    return true;
  };
  while (!linked()) {
    bool moved = false;
    for (const auto& process : processes_) moved |= process->node().step();
    if (!moved) TERSUM_CHECK(network_->advance_to_next_event());
  }
  for (int rank = 0; rank < options_.size; ++rank) {
    std::vector<RankPlace> places(static_cast<size_t>(options_.size));
    for (int other = 0; other < options_.size; ++other) {
      places[static_cast<size_t>(other)].process = ids[static_cast<size_t>(process_of(other))];
      places[static_cast<size_t>(other)].local = process_of(other) == process_of(rank);
    }
    const auto& process = processes_[static_cast<size_t>(process_of(rank))];
    const CommunicatorOptions& options = options_.communicator;
    std::shared_ptr<const Topology> topology;
    if (!options.topology.empty()) topology = open_topology(options.topology).value();
    std::vector<std::string> names;
    for (int other = 0; other < options_.size; ++other) {
      names.push_back(
          process->node().transport().host_of(addresses[static_cast<size_t>(process_of(other))]));
    }
    std::vector<int> hosts = number_hosts(names);
    topology = named_or_found(std::move(topology), hosts);
    const SliceLimits limits = limits_by_carrier(options, GroupCarrier::kWires, places.size());
    auto member = std::make_shared<Member>(process, kGroup, rank, std::move(places), limits, false,
                                           std::move(topology));
    for (const int host : hosts) member->carriers.push_back({host, false, options_.network.cpus});
    member->host_of = std::move(hosts);
    tell_carriers(*member, member->carriers);
    process->node().register_member(member);
    at(rank) = Communicator(std::make_shared<CommunicatorImpl>(process, member, options, false));
  }
}

std::vector<Status> Cluster::run(const std::function<Work(int rank, Communicator&)>& start) {
  std::vector<int> order(static_cast<size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) order[static_cast<size_t>(rank)] = rank;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(options_.seed));
  std::vector<Work> works(order.size());
  for (const int rank : order) works[static_cast<size_t>(rank)] = start(rank, at(rank));
  return finish(works);
}

std::vector<Status> Cluster::finish(std::vector<Work>& works) {
  if (options_.kind == ClusterKind::kSim) {
    const auto all_done = [&] {
      return std::all_of(works.begin(), works.end(), [](const Work& work) { return work.done(); });
    };
    while (!all_done()) {
      bool moved = false;
      for (const auto& process : processes_) moved |= process->node().step();
      // With nothing under way only a deadline can be next.
      if (!moved && !network_->advance_to_next_event()) network_->advance_by(1'000'000);
    }
  }
  std::vector<Status> statuses;
  for (Work& work : works) statuses.push_back(work.wait());
  return statuses;
}

}  // namespace tersum::testing
