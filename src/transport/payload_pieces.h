// A payload that does not lie in a slot but where its values are: in one place or in several, one
// piece after another.
//
// Thread safety: none. The bytes are borrowed; whoever hands pieces on says for how long.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tersum {

// To be read, and to be written.
using SourcePieces = std::span<const std::span<const std::byte>>;
using TargetPieces = std::span<const std::span<std::byte>>;
// Where a payload that arrives goes.
using Landing = std::vector<std::span<std::byte>>;

// A payload in more pieces is better copied: each takes a place in a system call, for both of its
// sides, and a slice of 64 KiB in as many has fewer than 1 KiB in each.
inline constexpr size_t kPayloadPiecesMax = 64;

// Bytes skipped..skipped+bytes-1 of a payload, out of its pieces and into them.
void copy_out(SourcePieces from, size_t skipped, std::byte* to, size_t bytes);
void copy_out(TargetPieces from, size_t skipped, std::byte* to, size_t bytes);
void copy_in(TargetPieces to, size_t skipped, const std::byte* from, size_t bytes);

// Calls `take` with each piece, or what is left of it, behind the payload's first `skipped` bytes.
template <typename Byte, typename Take>
void each_piece(std::span<const std::span<Byte>> pieces, size_t skipped, const Take& take) {
  for (const std::span<Byte>& piece : pieces) {
    if (skipped < piece.size()) {
      take(piece.subspan(skipped));
      skipped = 0;
    } else {
      skipped -= piece.size();
    }
  }
}

}  // namespace tersum
