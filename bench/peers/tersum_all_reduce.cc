// tersum_all_reduce FOLDER RANK SIZE TRANSPORT CODEC: tersum itself under the peer harness, from
// C++, so that what Python adds to a call can be told from what the library takes.
#include <string>

#include "peer_harness.h"
#include "tersum/codec_info.h"
#include "tersum/communicator.h"

namespace {

using tersum::CallOptions;
using tersum::CommunicatorOptions;
using tersum::DataType;
using tersum::ReduceOp;

template <typename T>
T value_or_exit(tersum::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().to_string().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

class Tersum {
 public:
  Tersum(const std::string& folder, int rank, int size, const std::string& transport,
         std::string codec)
      : codec_(std::move(codec)) {
    slack_ = static_cast<float>(size * value_or_exit(tersum::codec_block_error_bound(codec_, 1)) +
                                value_or_exit(tersum::codec_block_error_bound(codec_, 2.0 * size)));
    CommunicatorOptions options;
    options.transport =
        tersum::parse_transport_kind(transport).value_or(tersum::TransportKind::kAuto);
    options.listen_address = "127.0.0.1";
    options.timeout_ms = 120'000;
    const auto store =
        value_or_exit(tersum::open_store("file://" + folder + "/store", rank, 30'000));
    group_ = value_or_exit(tersum::Communicator::create(rank, size, store, options, "peers"));
  }

  [[nodiscard]] int rank() const { return group_.rank(); }
  [[nodiscard]] int size() const { return group_.size(); }

  // Inputs are at most 1: every contribution is wrong by the codec's bound for 1, and the sum,
  // which is at most twice the number of ranks even so, by its bound for that.
  [[nodiscard]] float slack() const { return slack_; }

  void all_reduce(const float* in, float* out, size_t count) {
    CallOptions options;
    options.codec = codec_;
    check(group_.all_reduce(in, out, count, DataType::kFloat32, ReduceOp::kSum, options));
  }

  void max(double* values, size_t count) {
    CallOptions exact;
    exact.codec = "exact";
    check(group_.all_reduce(values, values, count, DataType::kFloat64, ReduceOp::kMax, exact));
  }

 private:
  static void check(const tersum::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    std::exit(1);
  }

  std::string codec_;
  float slack_ = 0;
  tersum::Communicator group_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: tersum_all_reduce FOLDER RANK SIZE TRANSPORT CODEC\n");
    return 2;
  }
  const bool bound = tersum::peers::bind_rank(argv[1], std::atoi(argv[2]));
  Tersum library(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), argv[4], argv[5]);
  return tersum::peers::Harness<Tersum>(library, argv[1], bound).run();
}
