// ScratchPool: blocks of one size that outlive a call, so that the next one finds them warm.
//
// Thread safety: any thread. Invariant: at most `kept_max` idle blocks are kept; what is handed out
// beyond that is freed when it comes back.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace tersum {

class ScratchPool {
 public:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, kAlignment); }
  };
  using Block = std::unique_ptr<std::byte[], Free>;

  ScratchPool(size_t block_bytes, size_t kept_max)
      : block_bytes_(block_bytes), kept_max_(kept_max) {}

  [[nodiscard]] size_t block_bytes() const { return block_bytes_; }

  Block take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      return Block(static_cast<std::byte*>(::operator new[](block_bytes_, kAlignment)));
    }
    Block block = std::move(idle_.back());
    idle_.pop_back();
    return block;
  }

  void give(Block block) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kept_max_) idle_.push_back(std::move(block));
  }

 private:
  const size_t block_bytes_;
  const size_t kept_max_;
  std::mutex mutex_;
  std::vector<Block> idle_;
};

}  // namespace tersum
