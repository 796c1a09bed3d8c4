#include "xla/ffi_world_gate.h"

#include <algorithm>
#include <string>
#include <thread>

#include "base/check.h"
#include "runtime/thread_name.h"

namespace tersum::xla_ffi {
namespace {

Status not_configured() {
  return {StatusCode::kClosed,
          "tersum has no device world in this process: call tersum.jax.install() before running a "
          "program that was compiled for tersum"};
}

Status uninstalled() {
  return {StatusCode::kClosed, "tersum was uninstalled or shut down in this process"};
}

bool is_local(const ProcessFacts& facts, std::span<const int64_t> group) {
  return std::ranges::all_of(group, [&facts](int64_t id) {
    return std::ranges::find(facts.local_devices, id) != facts.local_devices.end();
  });
}

}  // namespace

WorldGate& WorldGate::instance() {
  static auto* const gate = new WorldGate;
  return *gate;
}

WorldGate::~WorldGate() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return bootstraps_running_ == 0; });
}

void WorldGate::configure(WorldHooks hooks) {
  auto era = std::make_shared<Era>();
  era->hooks = std::move(hooks);
  const std::scoped_lock lock(mutex_);
  era_ = std::move(era);
}

std::optional<WorldGate::World> WorldGate::resolve(const Era& era, std::span<const int64_t> group) {
  if (era.closed) return World(uninstalled());
  if (!era.local_error.ok()) return World(era.local_error);
  if (!era.facts.has_value()) return std::nullopt;
  if (is_local(*era.facts, group)) return World(era.local);
  if (era.global != nullptr) return World(era.global);
  if (!era.global_error.ok()) return World(era.global_error);
  return std::nullopt;
}

void WorldGate::with_world(std::span<const int64_t> group, Waiter waiter) {
  std::unique_lock lock(mutex_);
  if (era_ == nullptr) {
    lock.unlock();
    waiter(not_configured());
    return;
  }
  const std::shared_ptr<Era> era = era_;
  if (const std::optional<World> world = resolve(*era, group)) {
    lock.unlock();
    waiter(*world);
    return;
  }
  era->waiting.push_back({{group.begin(), group.end()}, std::move(waiter)});
  if (era->running) return;
  era->running = true;
  ++bootstraps_running_;
  std::thread([this, era] {
    name_thread("tersum-meet");
    bootstrap(era);
  }).detach();
}

void WorldGate::bootstrap(const std::shared_ptr<Era>& era) {
  std::unique_lock lock(mutex_);
  while (true) {
    serve(*era, lock);
    if (era->waiting.empty()) break;
    if (!era->facts.has_value()) {
      make_facts(*era, lock);
    } else {
      make_global(*era, lock);
    }
  }
  era->running = false;
  --bootstraps_running_;
  idle_.notify_all();
}

void WorldGate::make_facts(Era& era, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  Result<ProcessFacts> facts = era.hooks.describe();
  World local = facts.ok() ? era.hooks.make_local(*facts) : World(facts.status());
  lock.lock();
  if (era.closed) return abandon(local, lock);
  if (!local.ok()) {
    era.local_error = local.status();
    return;
  }
  era.local = *local;
  if (facts->process_count == 1) era.global = era.local;
  era.facts = std::move(facts).value();
}

void WorldGate::make_global(Era& era, std::unique_lock<std::mutex>& lock) {
  const ProcessFacts facts = *era.facts;
  lock.unlock();
  World global = era.hooks.make_global(facts);
  lock.lock();
  if (era.closed) return abandon(global, lock);
  if (global.ok()) {
    era.global = *global;
  } else {
    era.global_error = global.status();
  }
}

// close() came while this world was made and could not see it.
void WorldGate::abandon(const World& world, std::unique_lock<std::mutex>& lock) {
  if (!world.ok() || world.value() == nullptr) return;
  lock.unlock();
  world.value()->close();
  lock.lock();
}

void WorldGate::serve(Era& era, std::unique_lock<std::mutex>& lock) {
  std::vector<std::pair<Waiter, World>> ready;
  std::erase_if(era.waiting, [&](Waiting& waiting) {
    std::optional<World> world = resolve(era, waiting.group);
    if (!world.has_value()) return false;
    ready.emplace_back(std::move(waiting.waiter), *std::move(world));
    return true;
  });
  lock.unlock();
  for (const auto& [waiter, world] : ready) waiter(world);
  lock.lock();
}

std::vector<std::shared_ptr<DeviceWorld>> WorldGate::worlds() const {
  std::vector<std::shared_ptr<DeviceWorld>> found;
  const std::scoped_lock lock(mutex_);
  if (era_ == nullptr) return found;
  if (era_->local != nullptr) found.push_back(era_->local);
  if (era_->global != nullptr && era_->global != era_->local) found.push_back(era_->global);
  return found;
}

std::vector<SiteChoice> WorldGate::choices() const {
  std::vector<SiteChoice> found;
  for (const auto& world : worlds()) {
    const std::vector<SiteChoice> more = world->choices();
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

CommunicatorStats WorldGate::stats() const {
  CommunicatorStats sum;
  for (const auto& world : worlds()) {
    const CommunicatorStats stats = world->stats();
    sum.calls += stats.calls;
    sum.values += stats.values;
    sum.wire_bytes_sent += stats.wire_bytes_sent;
    sum.wire_bytes_received += stats.wire_bytes_received;
    sum.seconds += stats.seconds;
  }
  return sum;
}

Result<std::shared_ptr<DeviceWorld>> WorldGate::world() const {
  const std::scoped_lock lock(mutex_);
  if (era_ == nullptr) return not_configured();
  if (era_->global != nullptr) return era_->global;
  if (era_->facts.has_value() && era_->local != nullptr) return era_->local;
  return Status(StatusCode::kClosed,
                "the processes have not met yet: run a program that sums through tersum first, or "
                "pass install(flatten_state=…)");
}

void WorldGate::close() {
  std::shared_ptr<DeviceWorld> local;
  std::shared_ptr<DeviceWorld> global;
  std::vector<Waiting> waiting;
  {
    const std::scoped_lock lock(mutex_);
    if (era_ == nullptr) return;
    era_->closed = true;
    local = era_->local;
    global = era_->global;
    waiting.swap(era_->waiting);
    era_ = nullptr;
  }
  if (global != nullptr) global->close();
  if (local != nullptr && local != global) local->close();
  // A rendezvous may take its whole deadline; what waits for it need not.
  for (const Waiting& waiter : waiting) waiter.waiter(uninstalled());
}

}  // namespace tersum::xla_ffi
