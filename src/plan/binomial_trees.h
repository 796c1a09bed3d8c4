// Binomial trees: everybody is reached in ceil(log2 n) steps.
//
// Thread safety: pure functions. Invariant: root 0 for every size.
#pragma once

#include <bit>
#include <cstdint>

namespace tersum {

// The parent of node `index` > 0 in the binomial tree whose root is 0: the index without its
// highest bit. Node 1 then has the largest subtree, and is the first that the root sends to.
inline int binomial_parent(int index) {
  return index & ~static_cast<int>(std::bit_floor(static_cast<uint32_t>(index)));
}

}  // namespace tersum
