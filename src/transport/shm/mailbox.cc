#include "transport/shm/mailbox.h"

namespace tersum {

Result<SharedMemory> make_mailbox() {
  // Fresh memory is zero, which is what every counter starts from.
  return SharedMemory::create("tersum-mailbox", kMailboxBytes);
}

}  // namespace tersum
