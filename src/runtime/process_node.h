// The engine of this process: one node on the real transport, shared by all communicators.
//
// Thread safety: any thread. Invariant: it exists from the first acquire until the last holder has
// let go; then its thread, listener and links are gone.
#pragma once

#include <memory>

#include "runtime/progress.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

// `options` matter only to the call that makes the engine.
Result<std::shared_ptr<Progress>> acquire_process_node(const CommunicatorOptions& options);

}  // namespace tersum
