// The saved flatten states of several groups of devices in one piece: what a device world keeps.
//
// Pure functions; docs/wire-format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tersum/status.h"

namespace tersum {

// What FlattenSites::save() gave, by a digest of the group's devices.
using FlattenShelf = std::map<uint64_t, std::vector<std::byte>>;

std::vector<std::byte> pack_shelf(const FlattenShelf& shelf);
// kInvalidArgument for bytes that pack_shelf() does not write, or that hold a damaged state.
Result<FlattenShelf> unpack_shelf(std::span<const std::byte> packed);

}  // namespace tersum
