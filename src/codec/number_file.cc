#include "codec/number_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace tersum {
namespace {

constexpr std::string_view kSpaces = " \t\r\n,";
constexpr std::string_view kWordEnds = " \t\r\n,#";

}  // namespace

Status bad_number_file(std::string_view kind, std::string_view name, std::string_view why) {
  return invalid_argument("the " + std::string(kind) + " \"" + std::string(name) + "\" " +
                          std::string(why));
}

Result<std::string> read_number_file(std::string_view kind, std::string_view name,
                                     size_t bytes_max) {
  const std::filesystem::path path(name);
  std::error_code error;
  // Devices and pipes may have no end.
  if (!std::filesystem::is_regular_file(path, error)) {
    return bad_number_file(
        kind, name, "is neither a file here nor the digest of a registered " + std::string(kind));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.eof()) {
    const std::string longer = "is longer than " + std::to_string(bytes_max / 1024) + " KiB";
    return bad_number_file(kind, name, file.bad() || !file ? "cannot be read" : longer);
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string_view take_word(std::string_view& text) {
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
    if (!text.starts_with('#')) break;
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
  const size_t end = std::min(text.find_first_of(kWordEnds), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

bool read_float(std::string_view word, float& number) {
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace tersum
