// A list of tensors as one array: runs of it are those of the array written out.
#include "runtime/tuning/list_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace tersum {
namespace {

struct List {
  explicit List(const std::vector<size_t>& counts) : values(counts.size()) {
    float next = 1;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (size_t k = 0; k < counts[i]; ++k) values[i].push_back(next++);
      tensors.push_back({values[i].data(), values[i].data(), counts[i]});
      array.insert(array.end(), values[i].begin(), values[i].end());
      array.resize((array.size() + kListBlock - 1) / kListBlock * kListBlock);
    }
  }

  std::vector<std::vector<float>> values;
  std::vector<TensorRef> tensors;
  std::vector<float> array;  // written out
};

std::vector<float> runs_of(const List& list, const std::vector<size_t>& starts, size_t run) {
  const std::vector<std::byte> bytes = list_runs(list.tensors, DataType::kFloat32, starts, run);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(ListSample, TheWholeIsTheArrayWithZerosBetween) {
  const List list({1, 127, 128, 0, 129, 0, 1000, 3});
  EXPECT_EQ(list_values(list.tensors), list.array.size());
  EXPECT_EQ(runs_of(list, {0}, list.array.size()), list.array);
  EXPECT_EQ(list_values({}), 0U);
  EXPECT_TRUE(runs_of(List({}), {}, 512).empty());
}

TEST(ListSample, RunsAreThoseOfTheArray) {
  std::mt19937_64 random(20261122);
  for (int round = 0; round < 300; ++round) {
    std::vector<size_t> counts(random() % 12 + 1);
    for (size_t& count : counts) count = random() % 3 == 0 ? random() % 4 : random() % 2000;
    const List list(counts);
    if (list.array.empty()) continue;
    constexpr size_t kRun = 512;
    std::vector<size_t> starts;
    for (size_t at = 0; at < list.array.size(); at += kRun) {
      if (random() % 2 == 0) starts.push_back(at);
    }
    std::vector<float> expected;
    for (const size_t start : starts) {
      const auto begin = list.array.begin() + static_cast<std::ptrdiff_t>(start);
      const size_t here = std::min(kRun, list.array.size() - start);
      expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(here));
    }
    ASSERT_EQ(runs_of(list, starts, kRun), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace tersum
