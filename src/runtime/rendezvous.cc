#include "runtime/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "base/check.h"
#include "plan/host_topology.h"
#include "platform/cpu_count.h"
#include "platform/system_clock.h"
#include "runtime/group_id.h"
#include "tersum/version.h"

namespace tersum {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

std::string to_hex(const std::byte* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[static_cast<int>(bytes[i]) >> 4];
    text += kDigits[static_cast<int>(bytes[i]) & 15];
  }
  return text;
}

bool from_hex(std::string_view text, std::byte* bytes, size_t count) {
  if (text.size() != 2 * count) return false;
  for (size_t i = 0; i < count; ++i) {
    unsigned value = 0;
    const char* begin = text.data() + 2 * i;
    if (std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2) return false;
    bytes[i] = static_cast<std::byte>(value);
  }
  return true;
}

struct Secret {
  uint64_t group = 0;
  GroupToken token{};
};

Secret draw_secret() {
  SystemRandom random;
  Secret secret;
  secret.group = random.next();
  const uint64_t halves[2] = {random.next(), random.next()};
  std::memcpy(secret.token.data(), halves, sizeof(halves));
  return secret;
}

// One "key=value" line per field.
std::string field(std::string_view record, std::string_view key) {
  size_t at = 0;
  while (at < record.size()) {
    const size_t end = std::min(record.find('\n', at), record.size());
    const std::string_view line = record.substr(at, end - at);
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == '=') {
      return std::string(line.substr(key.size() + 1));
    }
    at = end + 1;
  }
  return {};
}

// Short names as they are; a file's text would make records and messages unreadable.
std::string topology_tag(const std::string& topology) {
  constexpr size_t kTagMax = 32;
  if (topology.size() <= kTagMax && topology.find('\n') == std::string::npos) return topology;
  return "file " + std::to_string(text_digest(topology));
}

std::string make_record(const MeetingRequest& request, const CommunicatorOptions& options,
                        const std::string& address) {
  return "wire_version=" + std::to_string(kWireVersion) +
         "\nsize=" + std::to_string(request.count) + "\nslice_bytes=" +
         (options.slice_bytes > 0 ? std::to_string(options.slice_bytes) : "the default") +
         "\nwindow_bytes=" + std::to_string(options.window_bytes) +
         "\nflatten_every=" + std::to_string(options.flatten_every) +
         "\ntopology=" + topology_tag(options.topology) + "\ntuning_rules=" + options.tuning_rules +
         "\ntune_at_start=" + (options.tune_at_start ? "yes" : "no") +
         "\ntransport=" + (options.transport == TransportKind::kTcp ? "tcp" : "any") +
         "\naddress=" + address + "\nextra=" + request.extra + "\n";
}

Status compare_records(const MeetingRequest& request, std::string_view own, std::string_view other,
                       int other_index) {
  for (const char* key : {"wire_version", "size", "slice_bytes", "window_bytes", "flatten_every",
                          "topology", "tuning_rules", "tune_at_start"}) {
    const std::string mine = field(own, key), theirs = field(other, key);
    if (mine == theirs) continue;
    const bool version = std::string_view(key) == "wire_version";
    return {version ? StatusCode::kVersionMismatch : StatusCode::kDisagreement,
            "members of group '" + request.name + "' disagree on " + key + ": " + request.noun +
                " " + std::to_string(request.index) + " has " + mine + ", " + request.noun + " " +
                std::to_string(other_index) + " has " + theirs +
                (version ? "; install the same version of tersum everywhere"
                         : "; pass the same on every rank")};
  }
  return {};
}

int64_t ms_left(const Progress& progress, int64_t deadline_ns) {
  return std::max<int64_t>((deadline_ns - progress.clock().now_ns()) / kNsPerMs, 1);
}

Result<Secret> share_secret(Progress& progress, Store& store, const MeetingRequest& request,
                            int64_t deadline_ns) {
  const std::string key = "tersum/" + request.name + "/token";
  if (request.index == 0) {
    const Secret secret = draw_secret();
    std::byte bytes[24];
    std::memcpy(bytes, &secret.group, 8);
    std::memcpy(bytes + 8, secret.token.data(), 16);
    const Status set = store.set(key, to_hex(bytes, sizeof(bytes)));
    if (set.code() == StatusCode::kInvalidArgument) {
      return invalid_argument(
          "a group named '" + request.name +
          "' has met in this store before; pass another name, or a fresh store");
    }
    if (!set.ok()) return set;
    return secret;
  }
  Result<std::string> text = store.wait(key, ms_left(progress, deadline_ns));
  if (!text.ok()) {
    if (text.status().code() != StatusCode::kTimeout) return text.status();
    return Status(StatusCode::kTimeout, request.noun + " 0 did not open the group '" +
                                            request.name +
                                            "' in time: " + std::string(text.status().message()));
  }
  std::byte bytes[24];
  if (!from_hex(*text, bytes, sizeof(bytes))) {
    return Status(StatusCode::kProtocol, "the store holds something else under '" + key +
                                             "'; use a store of tersum's own");
  }
  Secret secret;
  std::memcpy(&secret.group, bytes, 8);
  std::memcpy(secret.token.data(), bytes + 8, 16);
  return secret;
}

Status read_members(Progress& progress, Store& store, const MeetingRequest& request,
                    const std::string& own_record, int64_t deadline_ns, Meeting& meeting) {
  for (int i = 0; i < request.count; ++i) {
    std::string record = own_record;
    if (i != request.index) {
      Result<std::string> read =
          store.wait("tersum/" + request.name + "/member/" + std::to_string(i),
                     ms_left(progress, deadline_ns));
      if (!read.ok()) {
        if (read.status().code() != StatusCode::kTimeout) return read.status();
        return {StatusCode::kTimeout, request.noun + " " + std::to_string(i) + " did not join '" +
                                          request.name +
                                          "' in time; start it, or raise timeout_ms"};
      }
      record = *read;
      TERSUM_RETURN_IF_ERROR(compare_records(request, own_record, record, i));
    }
    meeting.addresses.push_back(field(record, "address"));
    meeting.extras.push_back(field(record, "extra"));
    meeting.carriers.push_back({0, field(record, "transport") == "tcp", {}});
  }
  return {};
}

Status read_addresses(const Transport& transport, Meeting& meeting) {
  std::vector<std::string> hosts;
  for (const std::string& member : meeting.addresses) {
    Result<ProcessId> process = transport.parse_peer(member);
    if (!process.ok()) return process.status();
    meeting.processes.push_back(process.value());
    hosts.push_back(transport.host_of(member));
  }
  meeting.host_of = number_hosts(hosts);
  for (size_t i = 0; i < hosts.size(); ++i) {
    meeting.carriers[i].host = meeting.host_of[i];
    meeting.carriers[i].cpus = transport.cpus_of(meeting.addresses[i]);
    meeting.carriers[i].cache_bytes = transport.cache_bytes_of(meeting.addresses[i]);
  }
  return {};
}

// Distinct processes of the meeting that this one links to, with the index of a member there.
std::vector<std::pair<ProcessId, int>> other_processes(const Meeting& meeting, ProcessId self,
                                                       const MeetingRequest& request) {
  std::vector<std::pair<ProcessId, int>> others;
  for (size_t i = 0; i < meeting.processes.size(); ++i) {
    const ProcessId process = meeting.processes[i];
    const auto member = static_cast<int>(i);
    if (request.topology != nullptr && !request.topology->adjacent(request.index, member)) continue;
    const bool seen = std::any_of(others.begin(), others.end(),
                                  [&](const auto& other) { return other.first == process; });
    if (process != self && !seen) others.emplace_back(process, member);
  }
  return others;
}

bool is_one_host(std::span<const RankCarrier> members) {
  return std::ranges::all_of(
      members, [&](const RankCarrier& other) { return other.host == members.front().host; });
}

// The members on one host.
struct HostMembers {
  int ranks = 0;
  std::string cpus;
  bool all_say = true;  // on which CPUs they may run

  void add(const RankCarrier& member) {
    ++ranks;
    all_say &= !member.cpus.empty();
    unite_cpus(cpus, member.cpus);
  }
  // 0: one of them does not say, or there are none.
  [[nodiscard]] int known_cpus() const { return all_say ? count_cpus(cpus) : 0; }
};

}  // namespace

GroupCarrier carrier_of(std::span<const RankCarrier> members) {
  if (!is_one_host(members)) return GroupCarrier::kWires;
  const bool over_tcp = std::any_of(members.begin(), members.end(),
                                    [](const RankCarrier& member) { return member.over_tcp; });
  return over_tcp ? GroupCarrier::kLoopback : GroupCarrier::kMemory;
}

size_t ranks_together(std::span<const RankCarrier> members, int rank) {
  const int host = members[static_cast<size_t>(rank)].host;
  return static_cast<size_t>(std::ranges::count(members, host, &RankCarrier::host));
}

int cpus_together(std::span<const RankCarrier> members) {
  if (!is_one_host(members)) return 0;
  HostMembers all;
  for (const RankCarrier& member : members) all.add(member);
  return all.known_cpus();
}

bool has_cpu_each(std::span<const RankCarrier> members, int rank) {
  const int own = members[static_cast<size_t>(rank)].host;
  HostMembers together;
  for (const RankCarrier& member : members) {
    if (member.host == own) together.add(member);
  }
  return together.known_cpus() >= together.ranks;
}

HostShare most_crowded(std::span<const RankCarrier> members) {
  std::map<int, HostMembers> hosts;
  for (const RankCarrier& member : members) hosts[member.host].add(member);
  HostShare most;
  for (const auto& [number, host] : hosts) {
    const int known = host.known_cpus();
    const HostShare share{host.ranks, known > 0 ? known : host.ranks};
    if (int64_t{share.ranks} * most.cpus > int64_t{most.ranks} * share.cpus) most = share;
  }
  return most;
}

size_t cache_bytes_of_host(std::span<const RankCarrier> members) {
  if (!is_one_host(members)) return 0;
  return std::ranges::min_element(members, {}, &RankCarrier::cache_bytes)->cache_bytes;
}

size_t cache_bytes_together(std::span<const RankCarrier> members) {
  return carrier_of(members) == GroupCarrier::kMemory ? cache_bytes_of_host(members) : 0;
}

void tell_carriers(Member& member, std::span<const RankCarrier> members) {
  member.ranks_of_host = ranks_together(members, member.rank);
  member.host_cpus = cpus_together(members);
  member.most_crowded = most_crowded(members);
  member.cpu_each = has_cpu_each(members, member.rank);
  member.cache_bytes = cache_bytes_together(members);
  member.host_cache_bytes = cache_bytes_of_host(members);
}

std::vector<RankCarrier> carriers_of_part(std::span<const RankCarrier> all,
                                          std::span<const int> ranks) {
  std::vector<RankCarrier> part;
  part.reserve(ranks.size());
  for (const int rank : ranks) {
    TERSUM_CHECK(rank >= 0 && static_cast<size_t>(rank) < all.size());
    part.push_back(all[static_cast<size_t>(rank)]);
  }
  return part;
}

SliceLimits limits_by_carrier(const CommunicatorOptions& options, GroupCarrier carrier,
                              size_t size) {
  const bool wires = carrier == GroupCarrier::kWires;
  const bool memory = carrier == GroupCarrier::kMemory;
  SliceLimits limits;
  limits.window_bytes = options.window_bytes;
  limits.slice_bytes = memory ? kSliceBytesInMemory : kSliceBytesOverTcp;
  limits.least_slice_bytes = wires ? kLeastSliceBytesOnWires : limits.slice_bytes;
  if (!wires || options.slice_bytes > 0) limits.slice_values = SIZE_MAX;
  if (options.slice_bytes > 0) {
    limits.slice_bytes = options.slice_bytes;
  } else if (!wires && size == 2) {
    limits.slice_bytes = kSliceBytesOfPair;
    limits.slice_values = kSliceValuesOfPair;
    if (!memory) limits.segment_bytes = kSliceBytesOverTcp;
  } else if (!wires && size > 2) {
    limits.window_bytes =
        std::min(limits.window_bytes, std::max(kWindowBytesWithinHost, size * kWindowBytesOfRank));
  }
  return limits;
}

SliceLimits slice_limits(const CommunicatorOptions& options, std::span<const RankCarrier> members) {
  const size_t size = members.size();
  SliceLimits limits = limits_by_carrier(options, carrier_of(members), size);
  const int cpus = cpus_together(members);
  const bool is_crowd = cpus > 0 && static_cast<int>(size) > kReachingRanksOfACpuMax * cpus;
  // Two slices of each of an all_reduce's flows.
  const bool window_holds_slices = 4 * (size - 1) * kSliceBytesOfCrowd <= kWindowBytesOfCrowd;
  const bool cache_holds_windows =
      cache_bytes_together(members) / kCrowdCacheShare >= size * kWindowBytesOfCrowd;
  if (is_crowd && window_holds_slices && cache_holds_windows && options.slice_bytes == 0 &&
      options.window_bytes >= kWindowBytesOfCrowd) {
    limits.plain_slice_bytes = kSliceBytesOfCrowd;
    limits.plain_window_bytes = kWindowBytesOfCrowd;
  }
  return limits;
}

Result<Meeting> meet(Progress& progress, Store& store, const MeetingRequest& request,
                     const CommunicatorOptions& options, int64_t deadline_ns) {
  Status listening;
  std::string address;
  progress.execute([&](Node& node) {
    listening = node.transport().listen(
        {options.listen_address, store.host(), options.listen_port, options.tcp_streams});
    if (listening.ok()) address = node.transport().address();
  });
  TERSUM_RETURN_IF_ERROR(listening);
  Result<Secret> secret = share_secret(progress, store, request, deadline_ns);
  if (!secret.ok()) return secret.status();
  Meeting meeting;
  meeting.group = secret->group;
  meeting.token = secret->token;
  // Admitted before the address is known to anybody: whoever finds us is let in.
  progress.execute([&](Node& node) { node.transport().admit(meeting.group, meeting.token); });
  const std::string record = make_record(request, options, address);
  TERSUM_RETURN_IF_ERROR(
      store.set("tersum/" + request.name + "/member/" + std::to_string(request.index), record));
  TERSUM_RETURN_IF_ERROR(read_members(progress, store, request, record, deadline_ns, meeting));
  TERSUM_RETURN_IF_ERROR(read_addresses(progress.node().transport(), meeting));
  return meeting;
}

Status link_up(Progress& progress, const Meeting& meeting, const MeetingRequest& request,
               const CommunicatorOptions& options, int64_t deadline_ns) {
  constexpr int64_t kPollNs = 1 * kNsPerMs;
  const ProcessId self = meeting.processes[static_cast<size_t>(request.index)];
  const auto others = other_processes(meeting, self, request);
  progress.execute([&](Node& node) {
    for (const auto& [process, index] : others) {
      // One side connects: the smaller id.
      if (node.transport().find(process) != nullptr || process < self) continue;
      node.forget_connect_failure(process);
      node.transport().connect(meeting.addresses[static_cast<size_t>(index)], meeting.group,
                               meeting.token, options.transport, deadline_ns);
    }
  });
  while (true) {
    int missing = -1;
    Status failure;
    progress.execute([&](Node& node) {
      for (const auto& [process, index] : others) {
        if (node.transport().find(process) != nullptr) continue;
        missing = index;
        failure = node.connect_failure(process);
        if (!failure.ok()) return;
      }
    });
    if (missing < 0) return {};
    if (!failure.ok()) {
      return {failure.code(), "cannot reach " + request.noun + " " + std::to_string(missing) +
                                  ": " + std::string(failure.message())};
    }
    if (progress.clock().now_ns() >= deadline_ns) {
      return {StatusCode::kTimeout, "no connection with " + request.noun + " " +
                                        std::to_string(missing) +
                                        " in time; check that its address can be reached, or "
                                        "raise timeout_ms"};
    }
    progress.wait_until([] { return false; }, kPollNs);
  }
}

}  // namespace tersum
