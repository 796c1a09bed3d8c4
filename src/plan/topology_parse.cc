// Topologies from JSON, and back. docs/topologies.md describes the format.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "plan/lined_json.h"
#include "plan/topology.h"

namespace tersum {
namespace {

struct RateUnit {
  std::string_view suffix;
  double bits;
};
// The longest suffix first: "kbit" ends in "bit" as well.
constexpr RateUnit kRateUnits[] = {{"kbit", 1e3},  {"mbit", 1e6}, {"gbit", 1e9},
                                   {"tbit", 1e12}, {"bit", 1},    {"", 1}};
constexpr double kLatencyMicrosecondsMax = kLatencySecondsMax * 1e6;
constexpr double kBurstBytesMax = 1e12;

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// Numbers as short as they can be written so that reading them gives the same value.
std::string shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : "0";
}

Status expect_kind(const LinedJson& value, JsonKind kind, const std::string& what) {
  if (value.kind == kind) return ok_status();
  return json_error(value.line, what + " must be " + std::string(json_kind_name(kind)) + ", not " +
                                    std::string(json_kind_name(value.kind)));
}

Status expect_members(const LinedJson& object, std::initializer_list<std::string_view> known,
                      const std::string& what) {
  for (const LinedJson& member : object.values) {
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    std::string list;
    for (const std::string_view name : known) list += (list.empty() ? "" : ", ") + quoted(name);
    return json_error(member.line,
                      what + " has no member " + quoted(member.key) + "; it may have " + list);
  }
  return ok_status();
}

class TopologyReader {
 public:
  Result<std::shared_ptr<const Topology>> read(const LinedJson& root) {
    TERSUM_RETURN_IF_ERROR(expect_kind(root, JsonKind::kObject, "a topology"));
    TERSUM_RETURN_IF_ERROR(expect_members(
        root, {"name", "shape", "rate", "latency_us", "burst_bytes", "hosts", "switches", "links"},
        "a topology"));
    topology_ = std::make_shared<Topology>();
    TERSUM_RETURN_IF_ERROR(read_names(root));
    TERSUM_RETURN_IF_ERROR(read_hosts(root));
    TERSUM_RETURN_IF_ERROR(read_switches(root));
    TERSUM_RETURN_IF_ERROR(read_links(root));
    int culprit = -1;
    const Status complete = complete_topology(*topology_, culprit);
    if (complete.ok()) return std::shared_ptr<const Topology>(std::move(topology_));
    const LinedJson* shape = root.find("shape");
    const int line = culprit >= 0       ? node_lines_[static_cast<size_t>(culprit)]
                     : shape != nullptr ? shape->line
                                        : root.line;
    return json_error(line, std::string(complete.message()));
  }

 private:
  Status read_names(const LinedJson& root) {
    topology_->name = "file";
    if (const LinedJson* name = root.find("name")) {
      TERSUM_RETURN_IF_ERROR(expect_kind(*name, JsonKind::kString, "\"name\""));
      topology_->name = name->text;
    }
    if (const LinedJson* shape = root.find("shape")) {
      TERSUM_RETURN_IF_ERROR(expect_kind(*shape, JsonKind::kString, "\"shape\""));
      topology_->shape = shape->text;
    }
    default_rate_ = root.find("rate");
    default_latency_ = root.find("latency_us");
    default_burst_ = root.find("burst_bytes");
    return ok_status();
  }

  Status add_node(const LinedJson& named, std::vector<std::string>& names) {
    if (named.text.empty()) return json_error(named.line, "a host or switch needs a name");
    if (!nodes_.emplace(named.text, static_cast<int>(nodes_.size())).second) {
      return json_error(named.line, quoted(named.text) + " is listed twice");
    }
    names.push_back(named.text);
    node_lines_.push_back(named.line);
    return ok_status();
  }

  Status read_hosts(const LinedJson& root) {
    const LinedJson* hosts = root.find("hosts");
    if (hosts == nullptr) return json_error(root.line, "\"hosts\" is missing");
    TERSUM_RETURN_IF_ERROR(expect_kind(*hosts, JsonKind::kArray, "\"hosts\""));
    if (hosts->values.empty()) return json_error(hosts->line, "\"hosts\" is empty; list the hosts");
    for (const LinedJson& host : hosts->values) TERSUM_RETURN_IF_ERROR(read_host(host));
    topology_->host_of.assign(host_of_rank_.size(), 0);
    const int count = static_cast<int>(host_of_rank_.size());
    for (const auto& [rank, host] : host_of_rank_) {
      if (rank >= count) {
        return json_error(node_lines_[static_cast<size_t>(host)],
                          "rank " + std::to_string(rank) + " of " + std::to_string(count) +
                              " ranks; number them 0.." + std::to_string(count - 1));
      }
      topology_->host_of[static_cast<size_t>(rank)] = host;
    }
    return ok_status();
  }

  Status read_host(const LinedJson& host) {
    if (host.kind == JsonKind::kString) {
      TERSUM_RETURN_IF_ERROR(add_node(host, topology_->hosts));
      return add_rank(host_of_rank_.empty() ? 0 : host_of_rank_.rbegin()->first + 1, host.line);
    }
    TERSUM_RETURN_IF_ERROR(expect_kind(host, JsonKind::kObject, "a host that is not just a name"));
    TERSUM_RETURN_IF_ERROR(expect_members(host, {"name", "ranks"}, "a host"));
    const LinedJson* name = host.find("name");
    if (name == nullptr) return json_error(host.line, "the host has no \"name\"");
    TERSUM_RETURN_IF_ERROR(expect_kind(*name, JsonKind::kString, "a host's \"name\""));
    TERSUM_RETURN_IF_ERROR(add_node(*name, topology_->hosts));
    const LinedJson* ranks = host.find("ranks");
    if (ranks == nullptr) {
      return json_error(host.line, "host " + quoted(name->text) + " has no \"ranks\"");
    }
    TERSUM_RETURN_IF_ERROR(expect_kind(*ranks, JsonKind::kArray, "\"ranks\""));
    if (ranks->values.empty()) {
      return json_error(ranks->line, "host " + quoted(name->text) +
                                         " has no ranks; list what only passes messages on under "
                                         "\"switches\"");
    }
    for (const LinedJson& rank : ranks->values) {
      TERSUM_RETURN_IF_ERROR(expect_kind(rank, JsonKind::kNumber, "a rank"));
      if (rank.number != std::floor(rank.number)) {
        return json_error(rank.line, "a rank must be a whole number");
      }
      const bool in_range = rank.number >= 0 && rank.number < kTopologyRanksMax;
      TERSUM_RETURN_IF_ERROR(add_rank(in_range ? static_cast<int>(rank.number) : -1, rank.line));
    }
    return ok_status();
  }

  // To the host that was added last.
  Status add_rank(int rank, int line) {
    if (rank < 0 || rank >= kTopologyRanksMax) {
      return json_error(line, "a rank must be 0.." + std::to_string(kTopologyRanksMax - 1));
    }
    const int host = static_cast<int>(topology_->hosts.size()) - 1;
    const auto [found, is_new] = host_of_rank_.emplace(rank, host);
    if (is_new) return ok_status();
    return json_error(line, "rank " + std::to_string(rank) + " is on host " +
                                quoted(topology_->hosts[static_cast<size_t>(found->second)]) +
                                " already");
  }

  Status read_switches(const LinedJson& root) {
    const LinedJson* switches = root.find("switches");
    if (switches == nullptr) return ok_status();
    TERSUM_RETURN_IF_ERROR(expect_kind(*switches, JsonKind::kArray, "\"switches\""));
    for (const LinedJson& name : switches->values) {
      TERSUM_RETURN_IF_ERROR(expect_kind(name, JsonKind::kString, "a switch"));
      TERSUM_RETURN_IF_ERROR(add_node(name, topology_->switches));
    }
    return ok_status();
  }

  Status read_links(const LinedJson& root) {
    const LinedJson* links = root.find("links");
    if (links == nullptr) {
      if (topology_->hosts.size() == 1 && topology_->switches.empty()) return ok_status();
      return json_error(root.line, "\"links\" is missing");
    }
    TERSUM_RETURN_IF_ERROR(expect_kind(*links, JsonKind::kArray, "\"links\""));
    for (const LinedJson& link : links->values) TERSUM_RETURN_IF_ERROR(read_link(link));
    return ok_status();
  }

  Status read_link(const LinedJson& link) {
    TERSUM_RETURN_IF_ERROR(expect_kind(link, JsonKind::kObject, "a link"));
    TERSUM_RETURN_IF_ERROR(
        expect_members(link, {"between", "rate", "latency_us", "burst_bytes"}, "a link"));
    const LinedJson* between = link.find("between");
    if (between == nullptr || between->kind != JsonKind::kArray || between->values.size() != 2) {
      return json_error(link.line, "a link needs \"between\": [one node, another]");
    }
    int ends[2] = {0, 0};
    for (size_t i = 0; i < 2; ++i) {
      const LinedJson& end = between->values[i];
      TERSUM_RETURN_IF_ERROR(expect_kind(end, JsonKind::kString, "a link's end"));
      const auto found = nodes_.find(end.text);
      if (found == nodes_.end()) {
        return json_error(end.line, "no host or switch is named " + quoted(end.text));
      }
      ends[i] = found->second;
    }
    const std::string name =
        quoted(between->values[0].text) + " and " + quoted(between->values[1].text);
    if (ends[0] == ends[1]) {
      return json_error(between->line, "a link joins two different nodes, not " + name);
    }
    const auto [low, high] = std::minmax(ends[0], ends[1]);
    if (!linked_.insert({low, high}).second) {
      return json_error(between->line, name + " are linked twice; give one link the sum of rates");
    }
    Result<double> rate = read_rate(link);
    if (!rate.ok()) return rate.status();
    Result<double> latency =
        read_number(link, "latency_us", default_latency_, kLatencyMicrosecondsMax,
                    "a latency must be between 0 and a minute, in microseconds");
    if (!latency.ok()) return latency.status();
    Result<double> burst = read_number(link, "burst_bytes", default_burst_, kBurstBytesMax,
                                       "a burst must be between 0 and 10^12, in bytes");
    if (!burst.ok()) return burst.status();
    TopologyLink one_way{ends[0], ends[1], rate.value(), latency.value() / 1e6, burst.value()};
    topology_->links.push_back(one_way);
    std::swap(one_way.from, one_way.to);
    topology_->links.push_back(one_way);
    return ok_status();
  }

  Result<double> read_rate(const LinedJson& link) const {
    const LinedJson* rate = link.find("rate");
    if (rate == nullptr) rate = default_rate_;
    if (rate == nullptr) {
      return json_error(link.line, "the link has no \"rate\", nor has the topology");
    }
    TERSUM_RETURN_IF_ERROR(expect_kind(*rate, JsonKind::kString, "\"rate\""));
    Result<double> parsed = parse_rate(rate->text);
    if (!parsed.ok()) return json_error(rate->line, std::string(parsed.status().message()));
    return parsed;
  }

  // A number of the link's own, else of all links; 0 where neither names one.
  static Result<double> read_number(const LinedJson& link, std::string_view name,
                                    const LinedJson* of_all, double most,
                                    const std::string& range) {
    const LinedJson* number = link.find(name);
    if (number == nullptr) number = of_all;
    if (number == nullptr) return 0.0;
    TERSUM_RETURN_IF_ERROR(expect_kind(*number, JsonKind::kNumber, quoted(name)));
    if (number->number >= 0 && number->number <= most) return number->number;
    return json_error(number->line, range);
  }

  std::shared_ptr<Topology> topology_;
  const LinedJson* default_rate_ = nullptr;
  const LinedJson* default_latency_ = nullptr;
  const LinedJson* default_burst_ = nullptr;
  std::map<std::string, int> nodes_;
  std::vector<int> node_lines_;
  std::map<int, int> host_of_rank_;
  std::set<std::pair<int, int>> linked_;
};

// A name as JSON: quotes, backslashes and control characters escaped.
std::string json_string(const std::string& text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

Result<double> parse_rate(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  for (const RateUnit& unit : kRateUnits) {
    if (error != std::errc() || suffix != unit.suffix) continue;
    const double bytes_per_s = number * unit.bits / 8;
    if (is_link_rate(bytes_per_s)) return bytes_per_s;
    return invalid_argument("the rate " + quoted(text) +
                            " must be positive: between 1 bit and 1000000 tbit per second");
  }
  return invalid_argument(quoted(text) +
                          " is no rate; write a number and bit, kbit, mbit, gbit or tbit");
}

Result<std::shared_ptr<const Topology>> parse_topology(std::string_view text) {
  Result<LinedJson> root = read_lined_json(text);
  if (!root.ok()) return root.status();
  return TopologyReader().read(root.value());
}

std::string describe_topology(const Topology& topology) {
  std::string out = "{\n  \"name\": " + json_string(topology.name);
  if (!topology.shape.empty()) out += ",\n  \"shape\": " + json_string(topology.shape);
  out += ",\n  \"hosts\": [";
  for (size_t host = 0; host < topology.hosts.size(); ++host) {
    out += (host == 0 ? "\n    {\"name\": " : ",\n    {\"name\": ") +
           json_string(topology.hosts[host]) + ", \"ranks\": [";
    for (const int rank : topology.ranks_of[host]) {
      out += (rank == topology.ranks_of[host].front() ? "" : ", ") + std::to_string(rank);
    }
    out += "]}";
  }
  out += "\n  ],\n  \"switches\": [";
  for (size_t i = 0; i < topology.switches.size(); ++i) {
    out += (i == 0 ? "" : ", ") + json_string(topology.switches[i]);
  }
  out += "],\n  \"links\": [";
  bool is_first = true;
  for (const TopologyLink& link : topology.links) {
    if (link.from > link.to) continue;  // its other direction
    out += (is_first ? "\n    {\"between\": [" : ",\n    {\"between\": [") +
           json_string(topology.node_name(link.from)) + ", " +
           json_string(topology.node_name(link.to)) + "], \"rate\": \"" +
           shortest(link.bytes_per_s * 8) +
           "bit\", \"latency_us\": " + shortest(std::round(link.latency_s * 1e15) / 1e9);
    if (link.burst_bytes > 0) out += ", \"burst_bytes\": " + shortest(link.burst_bytes);
    out += '}';
    is_first = false;
  }
  return out + "\n  ]\n}\n";
}

}  // namespace tersum
