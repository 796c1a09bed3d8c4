// Files of +kronecker: docs/wire-format.md, "Files of +kronecker".
//
// Thread safety: any thread.
#pragma once

#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

struct KroneckerNumbers {
  std::vector<float> p1;  // square, row by row
  std::vector<float> p2;
  std::vector<float> diagonal;  // empty: none
};

// kInvalidArgument names the file and the first thing that is wrong. Whether the matrices can be
// used is for register_kronecker_transform() to say.
Result<KroneckerNumbers> read_kronecker_file(std::string_view name);

// The same of a file's text.
Result<KroneckerNumbers> parse_kronecker(std::string_view name, std::string_view text);

Status bad_kronecker_file(std::string_view name, std::string_view why);

}  // namespace tersum
