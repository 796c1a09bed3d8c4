// What each collective promises about each part of its array: where it comes from, and who must
// end with it. Plans, their verifier and the executor read the same rules.
//
// Thread safety: pure functions. Invariant: nothing here knows of algorithms.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tersum/options.h"

namespace tersum {

inline constexpr int kAnyRank = -1;
inline constexpr int kEveryRank = -1;

struct PartRule {
  int owner = kAnyRank;       // who completes the part
  int receiver = kEveryRank;  // who ends with it; the owner alone where nothing is handed out
  [[nodiscard]] bool ends_with(int rank) const {
    return receiver == kEveryRank || receiver == rank;
  }
};

// Of part number `part`; all_reduce and broadcast have one part, the array.
PartRule part_rule(Collective collective, int size, int root, uint32_t part);

// How many equal parts the array is made of: one per rank (reduce_scatter, all_gather, gather,
// scatter), one per ordered pair of ranks (all_to_all: what i has for j is part i * size + j),
// or 1.
size_t part_count(Collective collective, int size);

// Whether the contributions of all ranks are summed up; otherwise the owner has the value.
bool reduces(Collective collective);

// Whether it has a root.
bool has_root(Collective collective);

// The element of the whole array at which the input of `rank` begins.
size_t input_begin(Collective collective, int size, int rank, size_t part_elements);
// The element at which the part begins in the output of a rank that ends with it.
size_t part_begin_in_output(Collective collective, int size, uint32_t part, size_t part_elements);

}  // namespace tersum
