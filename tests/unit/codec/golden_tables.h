// The tables of tests/golden/codec/tables: every number of levels that there is, with and without a
// zero and the ends of the range, one of one sign only.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tersum/codec_info.h"

namespace tersum {

// Their specs without block, which this process knows from now on.
inline std::vector<std::string> golden_tables() {
  std::vector<std::string> specs;
  for (const auto& file : std::filesystem::directory_iterator(TERSUM_GOLDEN_TABLES)) {
    const std::string spec = normalize_codec("table:" + file.path().string()).value();
    specs.push_back(spec.substr(0, spec.find('/')));
  }
  std::sort(specs.begin(), specs.end());
  return specs;
}

}  // namespace tersum
