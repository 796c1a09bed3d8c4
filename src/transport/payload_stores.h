// PayloadStores: how a payload is written that a peer reads in shared memory.
#pragma once

namespace tersum {

enum class PayloadStores {
  kAuto,      // past the caches where the peer's cores are far, as LineDistance finds
  kCached,    // by ordinary stores
  kStreamed,  // past the caches
};

}  // namespace tersum
