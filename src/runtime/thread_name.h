// A name for a thread that a layer above the runtime has started: what `top -H` and debuggers show.
//
// Thread safety: any thread, for itself.
#pragma once

#include "platform/service_thread.h"

namespace tersum {

// As name_this_thread(), for those who may not see the platform.
inline void name_thread(const char* name) { name_this_thread(name); }

}  // namespace tersum
