// Groups whose calls go in many slices though the arrays are short, and values for their ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {

inline Cluster make_small_slices(int size, uint64_t seed, ClusterKind kind = ClusterKind::kLocal,
                                 const std::string& topology = "") {
  ClusterOptions options;
  options.kind = kind;
  options.size = size;
  options.seed = seed;
  // Many slices and full windows in short arrays.
  options.communicator.slice_bytes = 4096;
  options.communicator.window_bytes = 64 * 1024;
  options.communicator.timeout_ms = 20'000;
  options.communicator.topology = topology;
  return Cluster(options);
}

// N(0,1), another draw for each size.
inline std::vector<std::vector<float>> normal_ranks(int size, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed + static_cast<uint64_t>(size));
  std::normal_distribution<float> bell;
  std::vector<std::vector<float>> ranks(static_cast<size_t>(size), std::vector<float>(count));
  for (auto& rank : ranks) std::generate(rank.begin(), rank.end(), [&] { return bell(random); });
  return ranks;
}

}  // namespace tersum::testing
