#include "transport/peer_address.h"

#include <charconv>
#include <optional>

#include "platform/cpu_count.h"
#include "transport/host_link.h"

namespace tersum {
namespace {

constexpr std::string_view kPrefix = "tersum:1;";
constexpr size_t kCacheDigitsMax = 15;

std::optional<uint64_t> parse_hex(std::string_view digits) {
  uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
  if (digits.size() != 16 || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<ProcessId> parse_id(std::string_view digits) {
  if (digits.size() != 32) return std::nullopt;
  const std::optional<uint64_t> high = parse_hex(digits.substr(0, 16));
  const std::optional<uint64_t> low = parse_hex(digits.substr(16));
  if (!high || !low) return std::nullopt;
  return ProcessId{*high, *low};
}

// 0 unless the text is a number of at most kCacheDigitsMax digits.
size_t parse_cache_bytes(std::string_view digits) {
  if (digits.empty() || digits.size() > kCacheDigitsMax) return 0;
  size_t bytes = 0;
  const char* const end = digits.data() + digits.size();
  return std::from_chars(digits.data(), end, bytes).ptr == end ? bytes : 0;
}

}  // namespace

std::string PeerAddress::to_string() const {
  std::string text(kPrefix);
  text += "id=" + process_name(id) + ";boot=" + boot + ";net=" + network + ";tcp=" + tcp;
  if (!unix_name.empty()) text += ";unix=" + unix_name;
  if (!cpus.empty()) text += ";cpus=" + cpus;
  if (cache_bytes > 0) text += ";cache=" + std::to_string(cache_bytes);
  return text;
}

Result<PeerAddress> parse_peer_address(std::string_view text) {
  const Status wrong(StatusCode::kProtocol,
                     "'" + std::string(text.substr(0, 200)) +
                         "' is not the address of a tersum process; do all ranks run the same "
                         "version, with a store of their own?");
  if (!text.starts_with(kPrefix)) return wrong;
  text.remove_prefix(kPrefix.size());
  PeerAddress address;
  bool has_id = false;
  while (!text.empty()) {
    const std::string_view field = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), field.size() + 1));
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos) return wrong;
    const std::string_view name = field.substr(0, equals);
    const std::string_view value = field.substr(equals + 1);
    if (name == "id") {
      const std::optional<ProcessId> id = parse_id(value);
      if (!id) return wrong;
      address.id = *id;
      has_id = true;
    } else if (name == "boot") {
      address.boot = value;
    } else if (name == "net") {
      address.network = value;
    } else if (name == "tcp") {
      address.tcp = value;
    } else if (name == "unix") {
      address.unix_name = value.substr(0, 100);
    } else if (name == "cpus") {
      // They only decide how calls go: what says none is no reason to refuse a peer.
      if (are_cpus(value)) address.cpus = value;
    } else if (name == "cache") {
      address.cache_bytes = parse_cache_bytes(value);
    }
  }
  if (!has_id || address.tcp.empty()) return wrong;
  return address;
}

std::string why_no_shared_memory(const PeerAddress& own, const PeerAddress& peer) {
  if (own.unix_name.empty()) return "this process was set up without it";
  if (peer.unix_name.empty()) return "the peer was set up without it";
  if (own.boot.empty() || own.network.empty()) return "this host hides its boot id or namespace";
  if (own.boot != peer.boot) return "the processes are on different hosts";
  if (own.network != peer.network) return "the processes are in different network namespaces";
  return {};
}

}  // namespace tersum
