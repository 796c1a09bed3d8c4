// Environment variables: the one place that reads them.
//
// Thread safety: any thread, as long as nobody changes the environment meanwhile.
#pragma once

#include <optional>
#include <string>

namespace tersum {

// The value of `name`, empty when it is not set. A variable set to "" counts as set.
std::optional<std::string> environment_variable(const char* name);

}  // namespace tersum
