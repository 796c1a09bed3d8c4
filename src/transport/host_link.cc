#include "transport/host_link.h"

#include <array>

namespace tersum {

std::string process_name(const ProcessId& id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint64_t half : {id.high, id.low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(half >> shift) & 15];
  }
  return text;
}

}  // namespace tersum
