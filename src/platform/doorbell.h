// Doorbell: an event descriptor that peers of the same host ring to wake a sleeping process.
//
// Thread safety: ring_doorbell() from any thread or process that holds a copy of the descriptor.
#pragma once

#include "platform/unique_fd.h"
#include "tersum/status.h"

namespace tersum {

Result<UniqueFd> make_doorbell();
void ring_doorbell(int fd);
// Takes the rings that have come; never blocks.
void clear_doorbell(int fd);

}  // namespace tersum
