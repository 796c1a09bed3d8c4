// Bytes as the golden files write them: pairs of hexadecimal digits, "-" for none.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tersum {

inline std::vector<std::byte> read_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  if (text == "-") return bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace tersum
