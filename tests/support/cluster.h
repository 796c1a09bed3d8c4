// Clusters: whole groups inside one test process, over any transport.
//
// Thread safety: none; a test drives one cluster from one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/communicator_impl.h"
#include "runtime/progress.h"
#include "runtime/trace_recorder.h"
#include "tersum/communicator.h"
#include "transport/array_reach_policy.h"
#include "transport/payload_stores.h"
#include "transport/sim/sim_network.h"

namespace tersum::testing {

enum class ClusterKind { kLocal, kTcp, kShm, kSim };

inline std::string cluster_kind_name(ClusterKind kind) {
  constexpr const char* kNames[] = {"local", "tcp", "shm", "sim"};
  return kNames[static_cast<int>(kind)];
}

struct ClusterOptions {
  ClusterKind kind = ClusterKind::kLocal;
  int size = 2;
  int ranks_per_process = 1;  // kLocal: all ranks are in one process
  uint64_t seed = 1;          // kSim
  SimOptions network;         // kSim
  CommunicatorOptions communicator;
  PayloadStores stores = PayloadStores::kAuto;  // kShm
  ArrayReachPolicy reach = ArrayReachPolicy::kAuto;
  int unreached_process = -1;  // of which the policy is kOff
  size_t trace_events = 0;     // > 0: every process has a recorder of that size
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  [[nodiscard]] int size() const { return options_.size; }
  Communicator& at(int rank) { return communicators_[static_cast<size_t>(rank)]; }
  Progress& process(int index) { return *processes_[static_cast<size_t>(index)]; }
  [[nodiscard]] int process_of(int rank) const;

  // Starts one call on every rank, in an order drawn from the seed, and waits until all have ended.
  std::vector<Status> run(const std::function<Work(int rank, Communicator&)>& start);
  // Waits for the given calls; a simulated cluster moves its clock.
  std::vector<Status> finish(std::vector<Work>& works);
  SimNetwork& network() { return *network_; }
  // Only while nobody drives that process.
  [[nodiscard]] const TraceRecorder& trace(int process) const {
    return *traces_[static_cast<size_t>(process)];
  }

 private:
  void make_host_processes();
  void make_sim_processes();
  void trace_processes(const Clock& clock);
  void meet_with_threads();
  void meet_by_stepping();

  ClusterOptions options_;
  std::unique_ptr<SimNetwork> network_;
  std::vector<std::unique_ptr<TraceRecorder>> traces_;  // outlive the processes
  std::vector<std::shared_ptr<Progress>> processes_;
  std::vector<Communicator> communicators_;
};

}  // namespace tersum::testing
