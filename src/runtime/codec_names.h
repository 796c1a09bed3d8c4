// The names of codecs, for layers that name them and know nothing else about them. Pure; any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "tersum/status.h"

namespace tersum {

// The canonical form of a codec spec ("int8" gives "int8/128"); kInvalidArgument names what is
// wrong and what would be allowed.
Result<std::string> canonical_codec(std::string_view spec);

}  // namespace tersum
