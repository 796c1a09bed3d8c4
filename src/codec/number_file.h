// Text files of numbers that specs name: tables, matrices. Words with white space or commas between
// them; '#' begins a comment, up to the end of its line.
//
// Thread safety: pure functions, but for reading the file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tersum/status.h"

namespace tersum {

// "the KIND "NAME" WHY", kInvalidArgument.
Status bad_number_file(std::string_view kind, std::string_view name, std::string_view why);

// The text of a regular file of at most `bytes_max` bytes. `kind`: what it should hold, for errors.
Result<std::string> read_number_file(std::string_view kind, std::string_view name,
                                     size_t bytes_max);

// The next word of `text`, which loses it; empty at the end.
std::string_view take_word(std::string_view& text);

// False if `word` is no decimal number of float32's range.
bool read_float(std::string_view word, float& number);

}  // namespace tersum
