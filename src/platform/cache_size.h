// How much the last cache before memory holds.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <string>

namespace tersum {

// Of the first CPU's largest level, as the system describes it, in bytes; 0 where it does not. On a
// virtual machine that is the host's, whoever else fills it. Read once per process.
size_t last_level_cache_bytes();

// The same by a folder of its description, such as /sys/devices/system/cpu/cpu0/cache: index0/level
// ("3"), index0/size ("266240K"), and so on.
size_t last_level_cache_bytes(const std::string& folder);

}  // namespace tersum
