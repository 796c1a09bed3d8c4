#include "platform/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "platform/system_error.h"

namespace tersum {
namespace {

#ifndef F_SEAL_FUTURE_WRITE
constexpr int F_SEAL_FUTURE_WRITE = 0x0010;  // Linux 5.1; the C library's headers may be older
#endif

Result<std::byte*> map(size_t bytes, int protection, int flags, int fd) {
  void* base = mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    return system_error(StatusCode::kSystem,
                        "cannot map " + std::to_string(bytes) + " bytes of memory", errno);
  }
  madvise(base, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(base);
}

}  // namespace

Result<SharedMemory> SharedMemory::create(const char* name, size_t bytes) {
  SharedMemory memory;
  memory.fd_ = UniqueFd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_) return system_error(StatusCode::kSystem, "cannot make a memory file", errno);
  if (ftruncate(memory.fd(), static_cast<off_t>(bytes)) != 0) {
    return system_error(StatusCode::kSystem,
                        "cannot size a memory file to " + std::to_string(bytes) + " bytes", errno);
  }
  Result<std::byte*> base = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd());
  if (!base.ok()) return base.status();
  memory.base_ = *base;
  memory.bytes_ = bytes;
  if (fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return system_error(StatusCode::kSystem, "cannot seal a memory file", errno);
  }
  // Best effort: older kernels refuse, and then an authenticated peer could write.
  fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  return memory;
}

Result<SharedMemory> SharedMemory::map_peer(UniqueFd fd, size_t bytes) {
  struct stat info{};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &info) != 0 || info.st_size < 0 || seals < 0 ||
      static_cast<size_t>(info.st_size) != bytes || bytes == 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(StatusCode::kProtocol, "a peer offered shared memory that is not what it said");
  }
  Result<std::byte*> base = map(bytes, PROT_READ, MAP_SHARED, fd.get());
  if (!base.ok()) return base.status();
  SharedMemory memory;
  memory.base_ = *base;
  memory.bytes_ = bytes;
  return memory;  // the mapping keeps the file; its descriptor is not needed
}

Result<SharedMemory> SharedMemory::anonymous(size_t bytes) {
  Result<std::byte*> base = map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (!base.ok()) return base.status();
  SharedMemory memory;
  memory.base_ = *base;
  memory.bytes_ = bytes;
  return memory;
}

void SharedMemory::unmap() {
  if (base_ != nullptr) munmap(std::exchange(base_, nullptr), bytes_);
  bytes_ = 0;
}

}  // namespace tersum
