// Groups on a simulated network some of whose messages arrive altered, and the calls that they are
// to get through.
//
// Thread safety: none. A group is altered only from alter_from_now() on, so that what its calls
// learn can be learned before.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/small_slices.h"
#include "wire/message.h"

namespace tersum::testing {

using Alter = std::function<int(MessageHeader&, std::span<std::byte>)>;

// Long before this every call below must have ended.
constexpr int64_t kBrokenTimeoutMs = 60'000;

// A codec, values that give each of two ranks a chunk of whole blocks, and the calls after which
// what its sites learn is used: a table after one, a clip when it is trusted.
struct BrokenCase {
  const char* codec;
  size_t count = 150;
  int calls_before = 0;
};

inline std::ostream& operator<<(std::ostream& out, const BrokenCase& broken) {
  return out << broken.codec << " after " << broken.calls_before;
}

constexpr size_t kLongCount = 1100;
constexpr BrokenCase kBrokenCases[] = {{"exact"},
                                       {"int8/32"},
                                       {"int6/32+hadamard"},
                                       {"nvfp4"},
                                       {"int4/32+sparse:0.5%"},
                                       {"int4/32+mixed"},
                                       {"int8/32+rows:40"},
                                       {"int4/64+adaptive", kLongCount},
                                       {"int8/32+shiftadd"},
                                       {"mxint8+shiftadd"},
                                       {"kmeans:4/32"},
                                       {"kmeans:4/32", kLongCount, 1},
                                       {"int4/32+clip:learned"},
                                       {"int4/128+clip:learned", kLongCount, 14},
                                       {"sum8/256", kLongCount},
                                       {"sum8/32+rows:25", kLongCount},
                                       {"sum8:tensor", kLongCount},
                                       {"sum:exp", kLongCount},
                                       {"lut2/32"},
                                       {"lut2/32+rows:10"}};

class BrokenGroup {
 public:
  struct Outcome {
    std::vector<Status> statuses;
    std::vector<std::vector<float>> sums;
    int64_t took_ns = 0;
  };

  BrokenGroup(int size, Alter alter) : alter_(std::move(alter)), cluster_(options(size)) {}
  BrokenGroup(const BrokenGroup&) = delete;
  BrokenGroup& operator=(const BrokenGroup&) = delete;

  void alter_from_now() { alters_ = true; }
  void alter_no_more() { alters_ = false; }

  // An all_reduce by two_step of N(0,1).
  Outcome call(const std::string& codec, size_t count, uint64_t seed) {
    Outcome outcome;
    outcome.sums = normal_ranks(cluster_.size(), count, seed);
    const int64_t begin_ns = cluster_.network().clock().now_ns();
    outcome.statuses = cluster_.run([&](int rank, Communicator& communicator) {
      float* const values = outcome.sums[static_cast<size_t>(rank)].data();
      return communicator.start_all_reduce(values, values, count, DataType::kFloat32,
                                           ReduceOp::kSum,
                                           {codec, PlanKind::kTwoStep, kBrokenTimeoutMs});
    });
    outcome.took_ns = cluster_.network().clock().now_ns() - begin_ns;
    return outcome;
  }

  // The calls before, unaltered; then all that follow are altered.
  void learn(const BrokenCase& broken) {
    for (int i = 0; i < broken.calls_before; ++i) {
      const Outcome right = call(broken.codec, broken.count, 100 + static_cast<uint64_t>(i));
      for (const Status& status : right.statuses) EXPECT_TRUE(status.ok()) << status.to_string();
    }
    alter_from_now();
  }

 private:
  ClusterOptions options(int size) {
    ClusterOptions options;
    options.kind = ClusterKind::kSim;
    options.size = size;
    options.seed = 7;
    options.network.reorder_probability = 0;
    options.network.alter = [this](MessageHeader& header, std::span<std::byte> payload) {
      return alters_ ? alter_(header, payload) : 1;
    };
    options.communicator.timeout_ms = kBrokenTimeoutMs;
    options.communicator.slice_bytes = 4096;
    options.communicator.window_bytes = 16 * 1024;
    return options;
  }

  Alter alter_;
  bool alters_ = false;
  Cluster cluster_;
};

inline bool are_all_ok(const BrokenGroup::Outcome& outcome) {
  return std::all_of(outcome.statuses.begin(), outcome.statuses.end(),
                     [](const Status& status) { return status.ok(); });
}

// Bits, as a NaN is no NaN's equal.
inline bool are_all_equal(const BrokenGroup::Outcome& outcome) {
  const std::vector<float>& first = outcome.sums[0];
  return std::all_of(outcome.sums.begin(), outcome.sums.end(), [&](const auto& sum) {
    return std::memcmp(sum.data(), first.data(), first.size() * sizeof(float)) == 0;
  });
}

}  // namespace tersum::testing
