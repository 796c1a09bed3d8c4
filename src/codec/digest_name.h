// The names that specs give to numbers of a user's own: a digest of their bytes.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tersum {

// XXH3-64 of the bytes in 16 lower-case hexadecimal digits.
std::string digest_name(std::span<const std::byte> bytes);

}  // namespace tersum
