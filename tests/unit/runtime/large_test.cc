// More than 2^31 elements: where a 32-bit index would wrap.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

// Why there is no room for so many bytes, or "".
std::string why_no_room(size_t bytes) {
  const auto free_bytes =
      static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (free_bytes >= bytes) return "";
  return "needs " + std::to_string(bytes >> 20) + " MiB of free memory, has " +
         std::to_string(free_bytes >> 20);
}

TEST(Large, MoreThanTwoToThe31Elements) {
  constexpr size_t kCount = (size_t{1} << 31) + 1009;
  if (const std::string why = why_no_room(3 * kCount); !why.empty()) GTEST_SKIP() << why;
  Cluster cluster(ClusterOptions{});
  std::vector<std::vector<uint8_t>> data(2);
  for (size_t r = 0; r < 2; ++r) data[r].assign(kCount, static_cast<uint8_t>(r + 1));
  data[0][kCount - 1] = 77;
  data[1][size_t{1} << 31] = 50;
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    auto& values = data[static_cast<size_t>(rank)];
    return communicator.start_all_reduce(values.data(), values.data(), kCount, DataType::kUint8,
                                         ReduceOp::kSum, {"exact", PlanKind::kAuto, 120'000});
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(data[0][kCount - 1], 79);
  EXPECT_EQ(data[1][kCount - 1], 79);
  EXPECT_EQ(data[0][size_t{1} << 31], 51);
  EXPECT_EQ(data[0][12345], 3);
  EXPECT_TRUE(data[0] == data[1]);
}

// The halves of an array of more than 2^31 elements: summed up by a ring, then put together again.
TEST(Large, PartsOfMoreThanTwoToThe31Elements) {
  constexpr size_t kPart = (size_t{1} << 30) + 505;
  if (const std::string why = why_no_room(7 * kPart); !why.empty()) GTEST_SKIP() << why;
  // A run of values again and again, whose length is odd: what is wrapped has others.
  std::vector<uint8_t> run((size_t{1} << 20) + 7);
  for (size_t i = 0; i < run.size(); ++i) run[i] = static_cast<uint8_t>(i % 127);
  std::vector<uint8_t> input;
  input.reserve(2 * kPart);
  while (input.size() < 2 * kPart) {
    const auto count = static_cast<ptrdiff_t>(std::min(run.size(), 2 * kPart - input.size()));
    input.insert(input.end(), run.begin(), run.begin() + count);
  }
  std::vector<std::vector<uint8_t>> sums(2, std::vector<uint8_t>(kPart));
  Cluster cluster(ClusterOptions{});
  const CallOptions how{"exact", PlanKind::kRing, 120'000};
  for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
         uint8_t* const own = sums[static_cast<size_t>(rank)].data();
         return communicator.start_reduce_scatter(input.data(), own, kPart, DataType::kUint8,
                                                  ReduceOp::kSum, how);
       })) {
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  std::vector<uint8_t> other(2 * kPart);
  const std::array<uint8_t*, 2> gathered = {input.data(), other.data()};
  for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
         const auto r = static_cast<size_t>(rank);
         return communicator.start_all_gather(sums[r].data(), gathered[r], kPart, DataType::kUint8,
                                              how);
       })) {
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  for (uint8_t& value : run) value = static_cast<uint8_t>(2 * value);
  for (size_t at = 0; at < input.size(); at += run.size()) {
    const size_t count = std::min(run.size(), input.size() - at);
    ASSERT_EQ(std::memcmp(&input[at], run.data(), count), 0) << "from " << at;
  }
  EXPECT_TRUE(input == other);
}

// An array of more than 2^33 bytes in some 20 MiB of memory: the same tile over and over, except
// that a few places beyond 2^32 bytes, and what lies behind 2^33, have memory of their own. So what
// was read or written at a wrapped offset shows there.
class TiledArray {
 public:
  static constexpr size_t kTileBytes = size_t{4} << 20;
  static constexpr size_t kTileValues = kTileBytes / sizeof(float);
  static constexpr size_t kTiles = (size_t{1} << 33) / kTileBytes;
  static constexpr size_t kTailValues = 1009;
  static constexpr size_t kCount = kTiles * kTileValues + kTailValues;
  // The first tile, the first beyond 2^32 bytes, one in the middle of what lies there, the last.
  static constexpr std::array<size_t, 4> kOwnTiles = {0, kTiles / 2, kTiles / 4 * 3, kTiles - 1};
  // In memory: the common tile, the own ones in order, the tail.
  static constexpr size_t kSlots = kOwnTiles.size() + 2;

  TiledArray() {
    file_ = memfd_create("tersum-tiles", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kSlots * kTileBytes)) != 0) {
      fail();
      return;
    }
    slots_ = map(nullptr, kSlots * kTileBytes, 0, MAP_SHARED);
    const size_t bytes = (kTiles + 1) * kTileBytes;
    void* const reserved =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
      fail();
      return;
    }
    data_ = static_cast<std::byte*>(reserved);
    for (size_t tile = 0; tile <= kTiles && reason_.empty(); ++tile) {
      map(data_ + tile * kTileBytes, kTileBytes, slot_of(tile) * kTileBytes,
          MAP_SHARED | MAP_FIXED);
    }
  }
  ~TiledArray() {
    if (data_ != nullptr) munmap(data_, (kTiles + 1) * kTileBytes);
    if (slots_ != nullptr) munmap(slots_, kSlots * kTileBytes);
    if (file_ >= 0) close(file_);
  }
  TiledArray(const TiledArray&) = delete;
  TiledArray& operator=(const TiledArray&) = delete;

  [[nodiscard]] const std::string& reason() const { return reason_; }  // why there is none; or ""
  [[nodiscard]] float* data() { return reinterpret_cast<float*>(data_); }
  [[nodiscard]] float* slot(size_t index) {
    return reinterpret_cast<float*>(slots_ + index * kTileBytes);
  }
  static size_t slot_values(size_t index) {
    return index + 1 == kSlots ? kTailValues : kTileValues;
  }

 private:
  static size_t slot_of(size_t tile) {
    if (tile == kTiles) return kSlots - 1;
    const auto own = std::find(kOwnTiles.begin(), kOwnTiles.end(), tile);
    return own == kOwnTiles.end() ? 0 : 1 + static_cast<size_t>(own - kOwnTiles.begin());
  }
  std::byte* map(void* where, size_t bytes, size_t offset, int flags) {
    void* const mapped =
        mmap(where, bytes, PROT_READ | PROT_WRITE, flags, file_, static_cast<off_t>(offset));
    if (mapped != MAP_FAILED) return static_cast<std::byte*>(mapped);
    fail();
    return nullptr;
  }
  void fail() { reason_ = std::string("no room for tiles: ") + std::strerror(errno); }

  int file_ = -1;
  std::byte* slots_ = nullptr;
  std::byte* data_ = nullptr;
  std::string reason_;
};

// What rank `r` contributes, below 1021 and another sequence in every slot.
float tile_value(size_t rank, size_t slot, size_t i) {
  return static_cast<float>((i * (rank + 3) + slot * 211) % 1021);
}

class LargeOver : public ::testing::TestWithParam<ClusterKind> {};

TEST_P(LargeOver, FloatsBeyondTwoToThe31ElementsInLittleMemory) {
  std::array<TiledArray, 2> inputs;
  std::array<TiledArray, 2> outputs;
  for (const auto* arrays : {&inputs, &outputs}) {
    for (const TiledArray& array : *arrays) {
      if (!array.reason().empty()) GTEST_SKIP() << array.reason();
    }
  }
  for (size_t r = 0; r < 2; ++r) {
    for (size_t slot = 0; slot < TiledArray::kSlots; ++slot) {
      float* const values = inputs[r].slot(slot);
      for (size_t i = 0; i < TiledArray::slot_values(slot); ++i) values[i] = tile_value(r, slot, i);
    }
  }
  ClusterOptions options;
  options.kind = GetParam();
  Cluster cluster(options);
  for (const char* codec : {"exact", "int8/128"}) {
    for (TiledArray& output : outputs) {
      std::memset(output.slot(0), 0, TiledArray::kSlots * TiledArray::kTileBytes);
    }
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      const auto r = static_cast<size_t>(rank);
      return communicator.start_all_reduce(inputs[r].data(), outputs[r].data(), TiledArray::kCount,
                                           DataType::kFloat32, ReduceOp::kSum,
                                           {codec, PlanKind::kTwoStep, 120'000});
    });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
    // As below: two contributions of at most 1020 and their sum, each wrong by half a step. Tiles
    // are whole blocks, and each block of the common one holds the sum of one place or another,
    // right within the slack, though not the same bits: owners have their own values exactly.
    const float slack = codec == std::string("exact") ? 0 : 2 * 1020 / 127.0F * 1.01F;
    for (size_t slot = 0; slot < TiledArray::kSlots; ++slot) {
      const size_t count = TiledArray::slot_values(slot);
      const float* const sums = outputs[0].slot(slot);
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        const float sum = tile_value(0, slot, i) + tile_value(1, slot, i);
        wrong += std::abs(sums[i] - sum) <= slack ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0U) << codec << ", slot " << slot;
      const bool same = std::memcmp(sums, outputs[1].slot(slot), count * sizeof(float)) == 0;
      EXPECT_TRUE(same || slot == 0) << codec << ", slot " << slot;
      // Behind the array nothing was written.
      EXPECT_TRUE(count == TiledArray::kTileValues || sums[count] == 0) << codec;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LargeOver,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kTcp,
                                           ClusterKind::kShm),
                         [](const auto& info) { return cluster_kind_name(info.param); });

// Arrays beyond the cache's size are written by other stores; 8 Mi values and some are enough.
TEST(Large, PastTheCacheTheSumsAreTheSame) {
  constexpr size_t kCount = (size_t{8} << 20) + 77;
  Cluster cluster(ClusterOptions{});
  std::vector<std::vector<float>> data(2);
  for (size_t r = 0; r < 2; ++r) {
    data[r].resize(kCount);
    for (size_t i = 0; i < kCount; ++i) data[r][i] = static_cast<float>((i * (r + 3)) % 1021);
  }
  for (const char* codec : {"exact", "int8/128"}) {
    std::vector<std::vector<float>> sums(2, std::vector<float>(kCount));
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      const auto r = static_cast<size_t>(rank);
      return communicator.start_all_reduce(data[r].data(), sums[r].data(), kCount,
                                           DataType::kFloat32, ReduceOp::kSum,
                                           {codec, PlanKind::kTwoStep, 120'000});
    });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(sums[0] == sums[1]) << codec;
    // Two contributions of at most 1020 and their sum, each wrong by half a step.
    const float slack = codec == std::string("exact") ? 0 : 2 * 1020 / 127.0F * 1.01F;
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      wrong += std::abs(sums[0][i] - (data[0][i] + data[1][i])) <= slack ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u) << codec;
  }
}

}  // namespace
}  // namespace tersum::testing
