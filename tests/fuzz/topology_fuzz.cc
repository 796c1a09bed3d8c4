// Any text as a topology's JSON: an error, or a topology that is written as text which gives the
// same one again.
#include <string>

#include "base/check.h"
#include "fuzz_input.h"
#include "plan/topology.h"

namespace tersum {
namespace {

void fuzz_topology(std::string_view text) {
  const auto parsed = parse_topology(text);
  if (!parsed.ok()) {
    TERSUM_CHECK(parsed.status().code() == StatusCode::kInvalidArgument);
    TERSUM_CHECK(!parsed.status().message().empty());
    return;
  }
  const Topology& topology = *parsed.value();
  TERSUM_CHECK(topology.ranks() >= topology.host_count());
  const std::string written = describe_topology(topology);
  const auto again = parse_topology(written);
  TERSUM_CHECK(again.ok() && describe_topology(*again.value()) == written);
  TERSUM_CHECK(again.value()->links == topology.links);
  TERSUM_CHECK(again.value()->host_of == topology.host_of);
  // A message finds its way between any two ranks.
  const int last = topology.ranks() - 1;
  int at = 0;
  for (int hops = 0; at != last; ++hops) {
    TERSUM_CHECK(hops < topology.ranks());
    at = topology.next_hop(at, last);
  }
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tersum::fuzz_topology(tersum::FuzzInput(data, size).text());
  return 0;
}
