// The engine of this process: one node on the real transport, shared by all communicators.
//
// Thread safety: any thread. Invariant: it exists from the first acquire until the last holder has
// let go; then its thread, listener and links are gone. With TERSUM_TRACE (or options.trace_file)
// one recorder serves all engines of the process, one after the other; its file is written when an
// engine ends and when the process exits.
#pragma once

#include <memory>

#include "runtime/progress.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

// `options` matter only to the call that makes the engine; `rank` of `size` names its trace.
Result<std::shared_ptr<Progress>> acquire_process_node(const CommunicatorOptions& options, int rank,
                                                       int size);

// The engine that exists now; null when there is none. Holding it keeps it alive.
std::shared_ptr<Progress> current_process_node();

}  // namespace tersum
