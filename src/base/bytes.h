// Numbers in little-endian byte order at any address: what travels and what is hashed.
//
// Thread safety: pure functions. Invariant: the bytes are the same on every host; the compiler
// turns each call into one move on little-endian ones.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tersum {

// Unsigned integers, signed integers and floats of 1, 2, 4 or 8 bytes.
template <typename T>
concept PlainNumber = std::is_arithmetic_v<T> && sizeof(T) <= 8;

namespace bytes_internal {

// The unsigned integer with `size` bytes; a float's bits are reversed as an integer.
template <size_t size>
using UnsignedOf = std::conditional_t<
    size == 1, uint8_t,
    std::conditional_t<size == 2, uint16_t, std::conditional_t<size == 4, uint32_t, uint64_t>>>;

template <typename U>
constexpr U reverse_bytes(U value) {
  U reversed = 0;
  for (size_t i = 0; i < sizeof(U); ++i) {
    reversed = static_cast<U>((reversed << (sizeof(U) > 1 ? 8 : 0)) | (value & 0xff));
    value = static_cast<U>(value >> (sizeof(U) > 1 ? 8 : 0));
  }
  return reversed;
}

}  // namespace bytes_internal

// Writes `value` to the sizeof(T) bytes at `to`, which need not be aligned.
template <PlainNumber T>
void store_le(void* to, T value) {
  auto bits = std::bit_cast<bytes_internal::UnsignedOf<sizeof(T)>>(value);
  if constexpr (std::endian::native == std::endian::big) {
    bits = bytes_internal::reverse_bytes(bits);
  }
  std::memcpy(to, &bits, sizeof(bits));
}

// Reads a T from the sizeof(T) bytes at `from`, which need not be aligned.
template <PlainNumber T>
[[nodiscard]] T load_le(const void* from) {
  bytes_internal::UnsignedOf<sizeof(T)> bits;
  std::memcpy(&bits, from, sizeof(bits));
  if constexpr (std::endian::native == std::endian::big) {
    bits = bytes_internal::reverse_bytes(bits);
  }
  return std::bit_cast<T>(bits);
}

// `bytes` rounded up to a multiple of `alignment`, a power of two.
constexpr size_t align_up(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

}  // namespace tersum
