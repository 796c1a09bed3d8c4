#include "runtime/process_node.h"

#include <mutex>

#include "codec/force_isa.h"
#include "platform/environment.h"
#include "platform/system_clock.h"
#include "transport/host_transport.h"

namespace tersum {
namespace {

// TERSUM_FORCE_ISA is obeyed or refused, never ignored: a benchmark or a test that names an
// instruction set must not run on another.
Status apply_environment() {
  const auto isa = environment_variable("TERSUM_FORCE_ISA");
  if (!isa || isa->empty()) return {};
  return force_isa(*isa);
}

}  // namespace

Result<std::shared_ptr<Progress>> acquire_process_node(const CommunicatorOptions& options) {
  static std::mutex mutex;
  static std::weak_ptr<Progress> current;
  static const SystemClock clock;
  static SystemRandom random;
  const std::lock_guard lock(mutex);
  if (auto alive = current.lock()) return alive;
  TERSUM_RETURN_IF_ERROR(apply_environment());
  HostTransportOptions transport_options;
  transport_options.clock = &clock;
  transport_options.random = &random;
  transport_options.tcp_streams = options.tcp_streams;
  auto transport = make_host_transport(transport_options);
  if (!transport.ok()) return transport.status();
  auto made =
      std::make_shared<Progress>(std::make_unique<Node>(clock, std::move(transport).value()));
  current = made;
  return made;
}

}  // namespace tersum
