// Binomial trees: everybody is reached in ceil(log2 n) steps.
//
// Thread safety: pure functions. Invariant: where their number is a power of two, the ranks of
// every subtree are neighbours, 2^k of them from a multiple of 2^k on.
#pragma once

#include <bit>
#include <cstdint>

namespace tersum {

// The parent of `rank`, which is not `root`, among `size` ranks: its distance from the root without
// the lowest bit. Distances are exclusive ors where that takes every rank to another one, and
// otherwise go round.
inline int binomial_parent(int rank, int root, int size) {
  const bool in_pairs = std::has_single_bit(static_cast<uint32_t>(size));
  const int distance = in_pairs ? rank ^ root : (rank - root + size) % size;
  const int nearer = distance & (distance - 1);
  return in_pairs ? nearer ^ root : (nearer + root) % size;
}

}  // namespace tersum
