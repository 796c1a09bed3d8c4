#include "transport/payload_pieces.h"

#include <algorithm>

#include "base/copy_bytes.h"

namespace tersum {
namespace {

template <typename Byte>
void copy_each(std::span<const std::span<Byte>> from, size_t skipped, std::byte* to, size_t bytes) {
  each_piece(from, skipped, [&](std::span<Byte> piece) {
    const size_t step = std::min(piece.size(), bytes);
    copy_bytes(to, piece.data(), step);
    to += step;
    bytes -= step;
  });
}

}  // namespace

void copy_out(SourcePieces from, size_t skipped, std::byte* to, size_t bytes) {
  copy_each(from, skipped, to, bytes);
}

void copy_out(TargetPieces from, size_t skipped, std::byte* to, size_t bytes) {
  copy_each(from, skipped, to, bytes);
}

void copy_in(TargetPieces to, size_t skipped, const std::byte* from, size_t bytes) {
  each_piece(to, skipped, [&](std::span<std::byte> piece) {
    const size_t step = std::min(piece.size(), bytes);
    copy_bytes(piece.data(), from, step);
    from += step;
    bytes -= step;
  });
}

}  // namespace tersum
