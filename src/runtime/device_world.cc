#include "runtime/device_world.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "plan/host_topology.h"
#include "runtime/deadline.h"
#include "runtime/environment_options.h"
#include "runtime/flatten_shelf.h"
#include "runtime/group_id.h"
#include "runtime/member.h"
#include "runtime/process_node.h"
#include "runtime/progress.h"
#include "runtime/rendezvous.h"
#include "runtime/sampled_calls.h"
#include "runtime/start_call.h"
#include "runtime/tuning/auto_codecs.h"

namespace tersum {
namespace {

std::string join(std::span<const int64_t> values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

std::vector<int64_t> split_numbers(std::string_view text) {
  std::vector<int64_t> values;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at < end) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc()) break;
    values.push_back(value);
    at = next + 1;
  }
  return values;
}

class DeviceWorldImpl final : public DeviceWorld {
 public:
  DeviceWorldImpl(std::shared_ptr<Progress> progress, const CommunicatorOptions& options,
                  int own_index, const Meeting& meeting)
      : progress_(std::move(progress)),
        options_(options),
        own_index_(own_index),
        meeting_(meeting) {
    for (size_t i = 0; i < meeting.extras.size(); ++i) {
      for (const int64_t device : split_numbers(meeting.extras[i])) {
        process_of_[device] = static_cast<int>(i);
      }
    }
  }
  ~DeviceWorldImpl() override { close(); }

  // A member that stands for the processes themselves: it keeps the links alive and hears of
  // losses.
  void pin_links() {
    std::vector<RankPlace> places(meeting_.processes.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = place_of(static_cast<int>(i));
    pin_ = std::make_shared<Member>(progress_, meeting_.group, own_index_, std::move(places),
                                    SliceLimits{}, true);
    progress_->execute([&](Node& node) { node.register_member(pin_); });
  }

  void start(const KeyedCall& call, OnDone on_done, void* context) override;
  [[nodiscard]] bool is_local(std::span<const int64_t> group) const override;
  [[nodiscard]] CommunicatorStats stats() const override;
  [[nodiscard]] std::vector<SiteChoice> choices() const override;
  [[nodiscard]] Result<std::vector<std::byte>> save_flatten() override;
  Status load_flatten(std::span<const std::byte> saved) override;
  Status reset_flatten() override;
  [[nodiscard]] Result<std::vector<std::byte>> save_feedback() override;
  Status load_feedback(std::span<const std::byte> saved) override;
  Status reset_feedback() override;
  void close() override;

 private:
  // Of each group that has met here.
  [[nodiscard]] std::vector<std::shared_ptr<Member>> members() const;
  [[nodiscard]] RankPlace place_of(int process_index) const {
    RankPlace place;
    place.process = meeting_.processes[static_cast<size_t>(process_index)];
    place.local = process_index == own_index_;
    return place;
  }
  // A device's place in a group.
  struct Place {
    std::shared_ptr<Member> member;
    std::shared_ptr<SampledCalls> sampled;
  };
  Result<Place> find_or_make_place(const KeyedCall& call);
  // Holds back calls that learn, of `places`, which are all; `loaded` becomes what it replaces.
  // False: one is in flight; `places` are those that are held back nevertheless.
  bool begin_change(FlattenShelf& loaded, std::vector<Place>& places);
  // What groups know, and what those to come begin with. kInvalidArgument, and nothing has changed:
  // a call that learns is in flight, or being sampled for.
  Status change_flatten(FlattenShelf loaded, const std::function<Status(Member&)>& change);

  const std::shared_ptr<Progress> progress_;
  const CommunicatorOptions options_;
  const int own_index_;
  const Meeting meeting_;
  std::map<int64_t, int> process_of_;  // global device id -> process index
  std::shared_ptr<Member> pin_;

  std::mutex change_mutex_;  // one change of what groups know at a time; before mutex_
  mutable std::mutex mutex_;
  std::map<std::pair<uint64_t, int64_t>, Place> places_;
  FlattenShelf loaded_;  // for members to come
  FeedbackShelf owed_;   // likewise
  bool closed_ = false;
};

// The same in every run: worlds have ids of their own.
uint64_t devices_digest(std::span<const int64_t> devices) { return device_group_id(0, devices); }
uint64_t device_digest(std::span<const int64_t> devices, int64_t device) {
  return mix_digests(devices_digest(devices), static_cast<uint64_t>(device));
}
uint64_t device_digest(const Member& member) {
  return device_digest(member.devices, member.devices[static_cast<size_t>(member.rank)]);
}

Result<DeviceWorldImpl::Place> DeviceWorldImpl::find_or_make_place(const KeyedCall& call) {
  const uint64_t group = device_group_id(meeting_.group, call.group);
  const std::lock_guard lock(mutex_);
  if (closed_) {
    return Status(StatusCode::kClosed, "tersum is uninstalled or shut down in this process");
  }
  const auto found = places_.find({group, call.device});
  if (found != places_.end()) return found->second;
  const auto own = std::find(call.group.begin(), call.group.end(), call.device);
  if (own == call.group.end()) {
    return invalid_argument("device " + std::to_string(call.device) + " is not in its own group");
  }
  std::vector<RankPlace> places;
  std::vector<int> processes;
  for (const int64_t device : call.group) {
    const auto process = process_of_.find(device);
    if (process == process_of_.end()) {
      return invalid_argument("device " + std::to_string(device) +
                              " is unknown; every process must have the same devices as when "
                              "tersum was installed");
    }
    places.push_back(place_of(process->second));
    processes.push_back(process->second);
  }
  std::vector<int> hosts = hosts_of_part(meeting_.host_of, processes);
  const std::vector<RankCarrier> carriers = carriers_of_part(meeting_.carriers, processes);
  auto member = std::make_shared<Member>(
      progress_, group, static_cast<int>(own - call.group.begin()), std::move(places),
      slice_limits(options_, carriers), true, topology_of_hosts(hosts));
  member->host_of = std::move(hosts);
  tell_carriers(*member, carriers);
  member->flatten.set_every(options_.flatten_every);
  member->rounding_seed = mix_digests(options_.rounding_seed, devices_digest(call.group));
  member->devices.assign(call.group.begin(), call.group.end());
  const auto loaded = loaded_.find(devices_digest(call.group));
  if (loaded != loaded_.end()) TERSUM_RETURN_IF_ERROR(member->flatten.load(loaded->second));
  const auto owed = owed_.find(device_digest(*member));
  if (owed != owed_.end()) TERSUM_RETURN_IF_ERROR(member->feedback.load(owed->second));
  const Place place{member, std::make_shared<SampledCalls>(member)};
  places_[{group, call.device}] = place;
  // Posted before the call's submission, so registered before it begins.
  progress_->node().post([member](Node& node) { node.register_member(member); });
  return place;
}

void DeviceWorldImpl::start(const KeyedCall& call, OnDone on_done, void* context) {
  auto place = find_or_make_place(call);
  if (!place.ok()) {
    on_done(context, place.status());
    return;
  }
  const CallArguments arguments{call.collective, call.input, call.output, call.count, call.type,
                                call.op,         0,          0,           call.site};
  if (is_auto(call.options.codec)) {
    if (!(call.options.max_rel_error > 0) || !std::isfinite(call.options.max_rel_error)) {
      on_done(context, invalid_argument("the codec auto needs the error that it may cause; pass "
                                        "max_rel_error above 0"));
      return;
    }
    place->sampled->start(arguments, call.options, options_.timeout_ms, call.key, on_done, context);
    return;
  }
  auto started = start_call(place->member, arguments, call.options, options_.timeout_ms, call.key,
                            true, on_done, context);
  if (!started.ok()) on_done(context, started.status());
}

bool DeviceWorldImpl::is_local(std::span<const int64_t> group) const {
  return std::all_of(group.begin(), group.end(), [&](int64_t device) {
    const auto process = process_of_.find(device);
    return process != process_of_.end() && process->second == own_index_;
  });
}

CommunicatorStats DeviceWorldImpl::stats() const {
  CommunicatorStats sum;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, place] : places_) add_stats(sum, *place.member);
  return sum;
}

std::vector<SiteChoice> DeviceWorldImpl::choices() const {
  // Devices of one group choose alike.
  std::map<uint64_t, SampledChoice> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, place] : places_) all.merge(place.sampled->choices());
  }
  std::vector<SiteChoice> found;
  found.reserve(all.size());
  for (const auto& [site, choice] : all) {
    found.push_back({site, choice.codec, choice.rel_error, choice.calls});
  }
  return found;
}

std::vector<std::shared_ptr<Member>> DeviceWorldImpl::members() const {
  std::vector<std::shared_ptr<Member>> found;
  const std::lock_guard lock(mutex_);
  found.reserve(places_.size());
  for (const auto& [key, place] : places_) found.push_back(place.member);
  return found;
}

Result<std::vector<std::byte>> DeviceWorldImpl::save_flatten() {
  FlattenShelf shelf;
  Status status;
  progress_->execute([&](Node& /*node*/) {
    // Members of one group hold equal states.
    for (const auto& member : members()) {
      Result<std::vector<std::byte>> saved = member->flatten.save();
      if (!saved.ok()) {
        status = saved.status();
        return;
      }
      shelf[devices_digest(member->devices)] = std::move(saved).value();
    }
  });
  if (!status.ok()) return status;
  return pack_shelf(shelf);
}

bool DeviceWorldImpl::begin_change(FlattenShelf& loaded, std::vector<Place>& places) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, place] : places_) {
    if (!place.sampled->begin_change()) return false;
    places.push_back(place);
  }
  // Groups that meet from here on have what the change puts in.
  loaded_.swap(loaded);
  return true;
}

// All or none: calls that learn are looked for in every group first.
Status DeviceWorldImpl::change_flatten(FlattenShelf loaded,
                                       const std::function<Status(Member&)>& change) {
  const std::lock_guard changing(change_mutex_);
  std::vector<Place> places;
  Status status;
  bool changed = false;
  const bool begun = begin_change(loaded, places);
  if (begun) {
    progress_->execute([&](Node& /*node*/) {
      for (const Place& place : places) {
        if (status.ok()) status = place.member->flatten.check_idle();
      }
      changed = status.ok();
      for (const Place& place : places) {
        if (status.ok()) status = change(*place.member);
      }
    });
    if (!status.ok()) {
      const std::lock_guard lock(mutex_);
      loaded_.swap(loaded);
    }
  } else {
    status = learning_in_flight();
  }
  for (const Place& place : places) place.sampled->end_change(changed);
  return status;
}

Status DeviceWorldImpl::load_flatten(std::span<const std::byte> saved) {
  Result<FlattenShelf> shelf = unpack_shelf(saved);
  if (!shelf.ok()) return shelf.status();
  return change_flatten(shelf.value(), [&](Member& member) {
    const auto found = shelf.value().find(devices_digest(member.devices));
    return found == shelf.value().end() ? Status() : member.flatten.load(found->second);
  });
}

Status DeviceWorldImpl::reset_flatten() {
  return change_flatten({}, [](Member& member) { return member.flatten.reset(std::nullopt); });
}

Result<std::vector<std::byte>> DeviceWorldImpl::save_feedback() {
  FeedbackShelf shelf;
  Status status;
  progress_->execute([&](Node& /*node*/) {
    for (const auto& member : members()) {
      Result<std::vector<std::byte>> saved = member->feedback.save();
      if (!saved.ok()) {
        status = saved.status();
        return;
      }
      shelf[device_digest(*member)] = std::move(saved).value();
    }
  });
  if (!status.ok()) return status;
  return pack_feedback(shelf);
}

Status DeviceWorldImpl::load_feedback(std::span<const std::byte> saved) {
  Result<FeedbackShelf> shelf = unpack_feedback(saved);
  if (!shelf.ok()) return shelf.status();
  Status status;
  progress_->execute([&](Node& /*node*/) {
    for (const auto& member : members()) {
      const auto found = shelf.value().find(device_digest(*member));
      status = found == shelf.value().end() ? member->feedback.reset()
                                            : member->feedback.load(found->second);
      if (!status.ok()) return;
    }
  });
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  owed_ = std::move(shelf).value();
  return {};
}

Status DeviceWorldImpl::reset_feedback() {
  {
    const std::lock_guard lock(mutex_);
    owed_.clear();
  }
  Status status;
  progress_->execute([&](Node& /*node*/) {
    for (const auto& member : members()) {
      if (status.ok()) status = member->feedback.reset();
    }
  });
  return status;
}

void DeviceWorldImpl::close() {
  std::vector<std::shared_ptr<Member>> members;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    for (const auto& [key, place] : places_) members.push_back(place.member);
  }
  if (pin_) members.push_back(pin_);
  const Status reason(StatusCode::kAborted, "tersum was uninstalled or shut down in this process");
  // Before anything is posted, for the reason that CommunicatorImpl::close() gives.
  for (const auto& member : members) {
    const std::lock_guard lock(member->mutex);
    member->closed = true;
    member->refusal = reason;
  }
  progress_->drain_all();
  progress_->execute([&](Node& node) {
    for (const auto& member : members) node.unregister_member(member, reason);
    node.transport().forget(meeting_.group);
  });
  for (const auto& member : members) {
    const std::lock_guard lock(member->mutex);
    member->pool.clear();
  }
}

}  // namespace

Result<std::shared_ptr<DeviceWorld>> DeviceWorld::create(int process_index, int process_count,
                                                         std::span<const int64_t> local_devices,
                                                         const std::shared_ptr<Store>& store,
                                                         const CommunicatorOptions& asked,
                                                         std::string_view name) {
  TERSUM_RETURN_IF_ERROR(check_options(asked));
  const Result<CommunicatorOptions> from_environment = with_environment(asked);
  if (!from_environment.ok()) return from_environment.status();
  const CommunicatorOptions& options = from_environment.value();
  auto acquired = acquire_process_node(options, process_index, process_count);
  if (!acquired.ok()) return acquired.status();
  return create_world_on(acquired.value(), process_index, process_count, local_devices, store,
                         options, name);
}

Result<std::shared_ptr<DeviceWorld>> create_world_on(const std::shared_ptr<Progress>& progress,
                                                     int process_index, int process_count,
                                                     std::span<const int64_t> local_devices,
                                                     const std::shared_ptr<Store>& store,
                                                     const CommunicatorOptions& options,
                                                     std::string_view name) {
  TERSUM_RETURN_IF_ERROR(check_options(options));
  if (process_count > 1 && store == nullptr) {
    return invalid_argument("a world of several processes needs a store to meet in");
  }
  const int64_t deadline = deadline_after_ms(progress->clock().now_ns(), options.timeout_ms);
  MeetingRequest request;
  request.name = std::string(name);
  request.noun = "process";
  request.index = process_index;
  request.count = process_count;
  request.extra = join(local_devices);
  Meeting meeting;
  if (process_count > 1) {
    auto met = meet(*progress, *store, request, options, deadline);
    if (!met.ok()) return met.status();
    meeting = met.value();
    TERSUM_RETURN_IF_ERROR(link_up(*progress, meeting, request, options, deadline));
  } else {
    // Nobody else needs to know this id; two worlds of one process must not share it.
    static std::atomic<uint64_t> worlds{0};
    meeting.group = derive_group_id(0, worlds.fetch_add(1), -1);
    meeting.extras = {request.extra};
    meeting.processes = {progress->node().transport().self()};
    meeting.host_of = {0};
    meeting.carriers = {RankCarrier()};
  }
  auto world = std::make_shared<DeviceWorldImpl>(progress, options, process_index, meeting);
  world->pin_links();
  return std::shared_ptr<DeviceWorld>(std::move(world));
}

}  // namespace tersum
