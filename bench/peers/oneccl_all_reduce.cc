// oneccl_all_reduce FOLDER RANK SIZE: oneCCL's allreduce under the peer harness. Rank 0 leaves the
// address of its key-value store in FOLDER/kvs.
#include <unistd.h>

#include <filesystem>
#include <oneapi/ccl.hpp>

#include "peer_harness.h"

namespace {

class OneCcl {
 public:
  OneCcl(const std::string& folder, int rank, int size)
      : rank_(rank),
        size_(size),
        communicator_(ccl::create_communicator(size, rank, meet(folder))) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  static float slack() { return 0; }
  void all_reduce(const float* in, float* out, size_t count) {
    ccl::allreduce(in, out, count, ccl::reduction::sum, communicator_).wait();
  }
  void max(double* values, size_t count) {
    ccl::allreduce(values, values, count, ccl::reduction::max, communicator_).wait();
  }

 private:
  [[nodiscard]] ccl::shared_ptr_class<ccl::kvs> meet(const std::string& folder) const {
    const std::string name = folder + "/kvs";
    if (rank_ == 0) {
      auto store = ccl::create_main_kvs();
      const ccl::kvs::address_type address = store->get_address();
      std::ofstream(name + ".new", std::ios::binary).write(address.data(), address.size());
      std::rename((name + ".new").c_str(), name.c_str());
      return store;
    }
    ccl::kvs::address_type address;
    while (!std::ifstream(name, std::ios::binary).read(address.data(), address.size())) {
      usleep(10'000);
    }
    return ccl::create_kvs(address);
  }

  int rank_;
  int size_;
  ccl::communicator communicator_;
};

// What the library's transport has put into shared memory, 64 MiB named by the process and more: it
// removes them in its destructors.
void remove_shared_files() {
  const std::string own = std::to_string(getpid()) + ":";
  std::error_code ignored;
  std::filesystem::directory_iterator file("/dev/shm", ignored);
  for (; !ignored && file != std::filesystem::directory_iterator(); file.increment(ignored)) {
    if (file->path().filename().string().starts_with(own)) std::filesystem::remove(*file, ignored);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: oneccl_all_reduce FOLDER RANK SIZE\n");
    return 2;
  }
  const bool bound = tersum::peers::bind_rank(argv[1], std::atoi(argv[2]));
  ccl::init();
  OneCcl library(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  const int status = tersum::peers::Harness<OneCcl>(library, argv[1], bound).run();
  remove_shared_files();
  // Without the destructors: the library's threads need nothing more, and the tool waits.
  std::fflush(nullptr);
  _exit(status);
}
