// The versions of tersum: of the API (semantic), and of the wire (must be equal on all ranks).
#pragma once

#include <cstdint>

#define TERSUM_VERSION_MAJOR 0
#define TERSUM_VERSION_MINOR 1
#define TERSUM_VERSION_PATCH 0
#define TERSUM_VERSION "0.1.0"

namespace tersum {

inline constexpr uint16_t kWireVersion = 1;

}  // namespace tersum
