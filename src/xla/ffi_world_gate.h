// WorldGate: gives every handler call the DeviceWorld that serves its group, now or soon.
//
// Two worlds: one of this process's devices alone (needs nobody else), one of all processes (needs
// a rendezvous). Both are made on a thread of the gate's own when the first call asks for them,
// because a handler may not block and the process's facts (its index, its devices) come from
// Python. Calls that come earlier wait in line, as futures. A program loaded from a compilation
// cache is therefore served like one that was compiled here.
//
// Thread safety: any thread. Invariants: with_world never blocks (except for the instant of a
// mutex); every waiter runs exactly once; a bootstrap that failed stays failed until configure();
// no world that the gate has made outlives close().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/device_world.h"
#include "tersum/communicator.h"
#include "tersum/status.h"

namespace tersum::xla_ffi {

// What only the Python side knows.
struct ProcessFacts {
  int process_index = 0;
  int process_count = 1;
  std::vector<int64_t> local_devices;  // global device ids
};

// Called on the gate's thread, one at a time; may block and may take the GIL.
struct WorldHooks {
  std::function<Result<ProcessFacts>()> describe;
  std::function<Result<std::shared_ptr<DeviceWorld>>(const ProcessFacts&)> make_local;
  // Called only when process_count > 1.
  std::function<Result<std::shared_ptr<DeviceWorld>>(const ProcessFacts&)> make_global;
};

class WorldGate {
 public:
  using Waiter = std::function<void(const Result<std::shared_ptr<DeviceWorld>>&)>;

  // The process's gate; never destroyed.
  static WorldGate& instance();

  WorldGate() = default;
  ~WorldGate();  // waits for a bootstrap under way
  WorldGate(const WorldGate&) = delete;
  WorldGate& operator=(const WorldGate&) = delete;

  // Sets how worlds are made and forgets those made before (their calls in flight end by
  // themselves).
  void configure(WorldHooks hooks);

  // Hands `waiter` the world whose devices include `group`: at once, on this thread, when it exists
  // or cannot exist; otherwise later, on the gate's thread.
  void with_world(std::span<const int64_t> group, Waiter waiter);

  // Sum over the worlds that exist.
  [[nodiscard]] CommunicatorStats stats() const;
  // Of all of them.
  [[nodiscard]] std::vector<SiteChoice> choices() const;

  // Of the world of all processes, or of this one's where there is no other. kClosed before the
  // first program that needs it has run.
  [[nodiscard]] Result<std::shared_ptr<DeviceWorld>> world() const;

  // Closes the worlds that exist: calls in flight end with kAborted. Later calls fail with kClosed,
  // and so do those that wait for a bootstrap under way. Does not wait for that: it ends by itself
  // and closes what it makes.
  void close();

 private:
  struct Waiting {
    std::vector<int64_t> group;
    Waiter waiter;
  };
  [[nodiscard]] std::vector<std::shared_ptr<DeviceWorld>> worlds() const;
  // All that configure() replaces; the bootstrap thread shares it.
  struct Era {
    WorldHooks hooks;
    std::optional<ProcessFacts> facts;
    std::shared_ptr<DeviceWorld> local;
    std::shared_ptr<DeviceWorld> global;
    Status local_error;
    Status global_error;
    bool running = false;
    bool closed = false;  // no world may be published any more
    std::vector<Waiting> waiting;
  };
  using World = Result<std::shared_ptr<DeviceWorld>>;

  // The answer for `group`, if it is known already.
  static std::optional<World> resolve(const Era& era, std::span<const int64_t> group);
  void bootstrap(const std::shared_ptr<Era>& era);
  static void make_facts(Era& era, std::unique_lock<std::mutex>& lock);
  static void make_global(Era& era, std::unique_lock<std::mutex>& lock);
  static void abandon(const World& world, std::unique_lock<std::mutex>& lock);
  static void serve(Era& era, std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  int bootstraps_running_ = 0;
  std::shared_ptr<Era> era_;
};

}  // namespace tersum::xla_ffi
