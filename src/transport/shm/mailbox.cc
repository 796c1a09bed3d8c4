#include "transport/shm/mailbox.h"

namespace tersum {

Result<SharedMemory> make_mailbox(uint64_t proof) {
  // Fresh memory is zero, which is what every counter starts from.
  Result<SharedMemory> memory = SharedMemory::create("tersum-mailbox", kMailboxBytes);
  if (!memory.ok()) return memory;
  auto* const mailbox = reinterpret_cast<MailboxLayout*>(memory->base());
  mailbox->self_at = reinterpret_cast<uintptr_t>(mailbox);
  mailbox->proof = proof;
  return memory;
}

}  // namespace tersum
