#include <charconv>
#include <optional>
#include <string>

#include "tersum/store.h"

namespace tersum {
namespace {

constexpr std::string_view kTcpScheme = "tcp://";
constexpr std::string_view kFileScheme = "file://";

Status malformed(std::string_view url, const std::string& why) {
  return invalid_argument("store URL \"" + std::string(url) + "\": " + why +
                          "; write tcp://HOST:PORT, tcp://[IPV6]:PORT or file:///DIRECTORY");
}

struct HostAndPort {
  std::string host;
  uint16_t port = 0;
};

Result<HostAndPort> parse_authority(std::string_view url, std::string_view text) {
  std::string_view host;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return malformed(url, "the bracket is not closed");
    host = text.substr(1, end - 1);
    if (host.find(':') == std::string_view::npos) {
      return malformed(url, "brackets are for IPv6 addresses");
    }
    if (end + 1 >= text.size() || text[end + 1] != ':')
      return malformed(url, "the port is missing");
    port = text.substr(end + 2);
  } else {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return malformed(url, "the port is missing");
    if (text.find(':', colon + 1) != std::string_view::npos) {
      return malformed(url, "an IPv6 address stands in brackets");
    }
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.empty()) return malformed(url, "the host is missing");
  if (host.find_first_of("/@?# \t\r\n") != std::string_view::npos) {
    return malformed(url, "there is no host \"" + std::string(host) + "\"");
  }
  HostAndPort parsed{std::string(host)};
  const auto [stop, error] = std::from_chars(port.begin(), port.end(), parsed.port);
  if (error != std::errc() || stop != port.end() || parsed.port == 0) {
    return malformed(
        url, "the port must be a number from 1 to 65535, not \"" + std::string(port) + "\"");
  }
  return parsed;
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// The path of a file URL: absolute, without a host, %xx decoded.
Result<std::string> parse_path(std::string_view url, std::string_view text) {
  if (!text.starts_with('/')) return malformed(url, "the directory must be absolute");
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      path.push_back(text[i]);
      continue;
    }
    const auto high = i + 2 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low || (*high == 0 && *low == 0)) {
      return malformed(url, "% must be followed by two hexadecimal digits (a % itself is %25)");
    }
    path.push_back(static_cast<char>(*high * 16 + *low));
    i += 2;
  }
  return path;
}

}  // namespace

Result<std::shared_ptr<Store>> open_store(std::string_view url, int rank, int64_t timeout_ms) {
  if (rank < 0) {
    return invalid_argument("store: rank " + std::to_string(rank) + "; ranks count from 0");
  }
  if (url.starts_with(kTcpScheme)) {
    const Result<HostAndPort> parsed = parse_authority(url, url.substr(kTcpScheme.size()));
    if (!parsed.ok()) return parsed.status();
    const HostAndPort& place = parsed.value();
    return make_tcp_store(place.host, place.port, rank == 0, timeout_ms);
  }
  if (url.starts_with(kFileScheme)) {
    const Result<std::string> path = parse_path(url, url.substr(kFileScheme.size()));
    if (!path.ok()) return path.status();
    return make_file_store(path.value());
  }
  return malformed(url, "this kind of store is not known");
}

}  // namespace tersum
