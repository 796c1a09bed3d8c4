// Two ranks in one process, in two threads, sum through an installed tersum.
#include <tersum/communicator.h>
#include <tersum/store.h>
#include <tersum/version.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 1000;

// Sums a vector of (rank + 1); true if every element became 1 + 2.
bool sum_as_rank(int rank, const std::string& directory) {
  auto store = tersum::make_file_store(directory);
  if (!store.ok()) {
    std::printf("rank %d: %s\n", rank, store.status().to_string().c_str());
    return false;
  }
  auto communicator = tersum::Communicator::create(rank, kRanks, store.value());
  if (!communicator.ok()) {
    std::printf("rank %d: %s\n", rank, communicator.status().to_string().c_str());
    return false;
  }
  const std::vector<float> input(kCount, static_cast<float>(rank + 1));
  std::vector<float> output(kCount);
  tersum::CallOptions options;
  options.codec = "exact";
  const tersum::Status status =
      communicator->all_reduce(input.data(), output.data(), kCount, tersum::DataType::kFloat32,
                               tersum::ReduceOp::kSum, options);
  if (!status.ok()) std::printf("rank %d: %s\n", rank, status.to_string().c_str());
  return status.ok() && output == std::vector<float>(kCount, 3.0f);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  bool right[kRanks] = {};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { right[rank] = sum_as_rank(rank, argv[1]); });
  }
  for (std::thread& thread : ranks) thread.join();
  std::printf("tersum %s: rank 0 %s, rank 1 %s\n", TERSUM_VERSION, right[0] ? "right" : "wrong",
              right[1] ? "right" : "wrong");
  return right[0] && right[1] ? 0 : 1;
}
