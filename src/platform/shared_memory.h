// SharedMemory: one mapped memory file, made here or received from a peer of the same host.
//
// Thread safety: none for the object; the mapped bytes are shared between processes.
// Invariants: a file made here can never change its size, nor be mapped writable by anyone else
// (where the kernel can seal that), so a peer cannot crash this process by cutting it or corrupt it
// by writing. It has no name and is gone with its last descriptor and mapping. Mappings are not
// inherited by fork().
#pragma once

#include <cstddef>
#include <utility>

#include "platform/unique_fd.h"
#include "tersum/status.h"

namespace tersum {

class SharedMemory {
 public:
  // A sparse file of `bytes` zeros, mapped writable.
  static Result<SharedMemory> create(const char* name, size_t bytes);
  // A peer's file, mapped read-only. kProtocol when it is not of `bytes` or could be cut.
  static Result<SharedMemory> map_peer(UniqueFd fd, size_t bytes);
  // Memory of this process only.
  static Result<SharedMemory> anonymous(size_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept
      : fd_(std::move(other.fd_)),
        base_(std::exchange(other.base_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    if (this != &other) {
      unmap();
      fd_ = std::move(other.fd_);
      base_ = std::exchange(other.base_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~SharedMemory() { unmap(); }

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  void unmap();

  UniqueFd fd_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tersum
