#include "transport/payload_pieces.h"

#include <algorithm>
#include <cstring>

namespace tersum {

void copy_out(SourcePieces from, size_t skipped, std::byte* to, size_t bytes) {
  each_piece(from, skipped, [&](std::span<const std::byte> piece) {
    const size_t step = std::min(piece.size(), bytes);
    if (step > 0) std::memcpy(to, piece.data(), step);
    to += step;
    bytes -= step;
  });
}

void copy_in(TargetPieces to, size_t skipped, const std::byte* from, size_t bytes) {
  each_piece(to, skipped, [&](std::span<std::byte> piece) {
    const size_t step = std::min(piece.size(), bytes);
    if (step > 0) std::memcpy(piece.data(), from, step);
    from += step;
    bytes -= step;
  });
}

}  // namespace tersum
