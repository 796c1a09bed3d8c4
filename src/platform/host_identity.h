// Which machine and which network this process is on.
//
// Thread safety: any thread. Two processes may share memory only when both texts are equal and not
// empty: namespaces of one machine share its boot id, but links between them must not be bypassed.
#pragma once

#include <cstdint>
#include <string>

namespace tersum {

// The kernel's random id of this boot; empty when it cannot be read.
std::string boot_id();

// The network namespace, e.g. "net:[4026531840]"; empty when it cannot be read.
std::string network_namespace_id();

// The host's name as its administrator calls it; empty when it cannot be read.
std::string host_name();

// The number of this process within its process namespace.
int64_t process_number();

}  // namespace tersum
