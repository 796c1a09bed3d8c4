// Streams of 2-bit codes added without decoding them: a table says what the code of the sum of two
// codes is, so that a byte of each stream becomes a byte of the result.
//
// Both streams must have one scale. Four codes lie in a byte, the first in the lowest bits.
//
// Thread safety: pure functions. Every pointer may be unaligned. No allocation. Every instruction
// set gives the bits of the scalar reference.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tersum {

inline constexpr size_t kPairCodes = 4;  // in a byte

// table[a + 4 * b]: what a code a of the first stream and b of the second come to; below 4.
using PairTable = std::array<uint8_t, 16>;

// Codes 0 to 3 stand for -3, -1, 1 and 3 halves of a step. The code nearest to the mean of two: the
// sum, at twice the step. Between two codes it takes the side of the first stream's code, so that
// over both orders of a pair nothing is gained or lost.
PairTable mean_pair_table();

// out[i] from byte i of each stream; `out` may be `a` or `b`.
using AddPairs = void (*)(const PairTable& table, const std::byte* a, const std::byte* b,
                          size_t bytes, std::byte* out);

// For `target`, one of available_targets(); and for active_target().
AddPairs add_pairs_of(int64_t target);
void add_pairs(const PairTable& table, const std::byte* a, const std::byte* b, size_t bytes,
               std::byte* out);

}  // namespace tersum
