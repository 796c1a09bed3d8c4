// Status from errno.
//
// Thread safety: any thread.
#pragma once

#include <string>

#include "tersum/status.h"

namespace tersum {

// "Connection refused" for ECONNREFUSED.
std::string error_text(int error_number);

// `what` followed by the text of `error_number`.
Status system_error(StatusCode code, std::string what, int error_number);

}  // namespace tersum
