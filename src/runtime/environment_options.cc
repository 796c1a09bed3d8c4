#include "runtime/environment_options.h"

#include <charconv>
#include <string>

#include "platform/environment.h"
#include "runtime/compiled_plan.h"
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

// What slice_bytes may be beside the window, which is the program's: of whoever set the variable it
// is not known that there is one.
Status check_slice(const CommunicatorOptions& options) {
  if (options.slice_bytes <= options.window_bytes) return {};
  return invalid_argument("TERSUM_SLICE_BYTES is '" + std::to_string(options.slice_bytes) +
                          "', above window_bytes, which the program sets to " +
                          std::to_string(options.window_bytes) + "; set it to a number from " +
                          std::to_string(kSliceBytesMin) + " to " +
                          std::to_string(options.window_bytes) + ", or leave it out");
}

}  // namespace

Status check_options(const CommunicatorOptions& options) {
  if (options.timeout_ms <= 0) {
    return invalid_argument("timeout_ms is " + std::to_string(options.timeout_ms) +
                            "; pass a positive number of milliseconds");
  }
  const size_t slice_bytes = options.slice_bytes > 0 ? options.slice_bytes : kSliceBytesInMemory;
  if (slice_bytes < kSliceBytesMin || slice_bytes > kSliceBytesMax) {
    return invalid_argument("slice_bytes is " + std::to_string(slice_bytes) + "; pass " +
                            std::to_string(kSliceBytesMin) + ".." + std::to_string(kSliceBytesMax));
  }
  if (options.window_bytes < slice_bytes) {
    return invalid_argument("window_bytes is " + std::to_string(options.window_bytes) +
                            ", below slice_bytes; pass at least " + std::to_string(slice_bytes));
  }
  if (options.flatten_every == 0) {
    return invalid_argument("flatten_every is 0; pass the number of calls per look, 1 or more");
  }
  return {};
}

Result<CommunicatorOptions> with_environment(CommunicatorOptions options) {
  TERSUM_RETURN_IF_ERROR(
      read_number("TERSUM_SLICE_BYTES", kSliceBytesMin, kSliceBytesMax, options.slice_bytes));
  TERSUM_RETURN_IF_ERROR(check_slice(options));
  TERSUM_RETURN_IF_ERROR(read_number("TERSUM_STREAMS", 1, int{kStreamsMax}, options.tcp_streams));
  int tunes = options.tune_at_start ? 1 : 0;
  TERSUM_RETURN_IF_ERROR(read_number("TERSUM_TUNE_AT_START", 0, 1, tunes));
  options.tune_at_start = tunes != 0;
  return options;
}

}  // namespace tersum
