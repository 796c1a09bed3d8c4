// The transforms of tests/golden/codec/transforms: with and without a diagonal, orthogonal and near
// the largest condition number that is allowed, of huge and of tiny numbers.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "codec/kronecker_transforms.h"

namespace tersum {

// "+kronecker:…" of each, which this process knows from now on; `block`: for such blocks only, 0
// for all.
inline std::vector<std::string> golden_transforms(size_t block) {
  std::vector<std::string> modifiers;
  for (const auto& file : std::filesystem::directory_iterator(TERSUM_GOLDEN_TRANSFORMS)) {
    const uint16_t number = find_kronecker_transform(file.path().string()).value();
    const KroneckerTransform& transform = kronecker_transform(number);
    if (block == 0 || transform.block() == block) {
      modifiers.push_back("+kronecker:" + transform.name);
    }
  }
  std::sort(modifiers.begin(), modifiers.end());
  return modifiers;
}

}  // namespace tersum
