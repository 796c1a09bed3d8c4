// OutputFile: a file that is written piece by piece and appears whole, in place of an older one.
//
// Thread safety: one thread at a time. Functions return an errno, 0 for success. Invariant: until
// finish() has succeeded the old file stands; what was not finished leaves nothing behind.
#pragma once

#include <string>
#include <string_view>

#include "platform/unique_fd.h"

namespace tersum {

class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  int open(const std::string& path);
  int append(std::string_view bytes);
  int finish();

 private:
  std::string path_;
  std::string draft_;  // empty when there is none
  UniqueFd fd_;
};

}  // namespace tersum
