#include "platform/system_error.h"

#include <system_error>

namespace tersum {

std::string error_text(int error_number) {
  // std::strerror is not thread-safe; this is.
  return std::generic_category().message(error_number);
}

Status system_error(StatusCode code, std::string what, int error_number) {
  return {code, std::move(what) + ": " + error_text(error_number)};
}

}  // namespace tersum
