#include "runtime/tuning/tuning_key.h"

#include <algorithm>

#include "runtime/group_id.h"
#include "tersum/isa.h"
#include "tersum/version.h"

namespace tersum {
namespace {

// "boot=…;net=…;" of an address; process ids and ports change with every run.
std::string host_part(const std::string& address) {
  std::string part;
  for (const char* field : {"boot=", "net="}) {
    const size_t begin = address.find(field);
    if (begin == std::string::npos) continue;
    part += address.substr(begin, address.find(';', begin) - begin) + ";";
  }
  return part;
}

}  // namespace

std::string make_tuning_key(const std::vector<std::string>& addresses,
                            const CommunicatorOptions& options, int host_cpus) {
  std::vector<std::string> parts;
  parts.reserve(addresses.size());
  for (const std::string& address : addresses) parts.push_back(host_part(address) + "\n");
  // A pair of ranks is the same wire whichever of them is rank 0.
  if (parts.size() == 2) std::sort(parts.begin(), parts.end());
  std::string hosts;
  for (const std::string& part : parts) hosts += part;
  return "tersum tuning 17, version " TERSUM_VERSION ", wire " + std::to_string(kWireVersion) +
         ", isa " + std::string(active_isa()) + ", ranks " + std::to_string(addresses.size()) +
         ", transport " + std::string(transport_kind_name(options.transport)) + ", streams " +
         std::to_string(options.tcp_streams) + ", slice " + std::to_string(options.slice_bytes) +
         ", window " + std::to_string(options.window_bytes) + ", wires " +
         std::to_string(text_digest(options.topology)) + ", cpus " + std::to_string(host_cpus) +
         ", hosts " + std::to_string(text_digest(hosts));
}

}  // namespace tersum
