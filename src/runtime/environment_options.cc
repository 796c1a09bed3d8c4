#include "runtime/environment_options.h"

#include <charconv>
#include <string>

#include "platform/environment.h"
#include "wire/handshake.h"

namespace tersum {
namespace {

// Leaves `value` alone where the variable is not set, or empty.
template <typename Number>
Status read_number(const char* name, Number least, Number most, Number& value) {
  const auto text = environment_variable(name);
  if (!text || text->empty()) return {};
  Number number = 0;
  const char* const end = text->data() + text->size();
  const auto [parsed, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc() || parsed != end || number < least || number > most) {
    return invalid_argument(std::string(name) + " is '" + *text + "'; set it to a number from " +
                            std::to_string(least) + " to " + std::to_string(most) +
                            ", or leave it out");
  }
  value = number;
  return {};
}

}  // namespace

Result<CommunicatorOptions> with_environment(CommunicatorOptions options) {
  TERSUM_RETURN_IF_ERROR(
      read_number("TERSUM_SLICE_BYTES", kSliceBytesMin, kSliceBytesMax, options.slice_bytes));
  TERSUM_RETURN_IF_ERROR(read_number("TERSUM_STREAMS", 1, int{kStreamsMax}, options.tcp_streams));
  return options;
}

}  // namespace tersum
