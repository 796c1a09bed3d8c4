#include "runtime/codec_timing.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/median.h"
#include "codec/codec.h"
#include "codec/kmeans_codec.h"
#include "platform/system_clock.h"

namespace tersum {
namespace {

// Long against the clock's tick, short against a time slice of the system's.
constexpr size_t kValuesPerSample = 256 * 1024;

template <typename Run>
double seconds_of(const SystemClock& clock, size_t repeats, const Run& run) {
  const int64_t start = clock.now_ns();
  for (size_t i = 0; i < repeats; ++i) run();
  return static_cast<double>(std::max<int64_t>(clock.now_ns() - start, 1)) * 1e-9;
}

// Makes the compiler believe that somebody reads what was written.
void use(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

// Of how many ranks a sum is finished.
constexpr uint32_t kRateRanks = 2;

// As an owner does it: the sum of the others and itself, encoded, and what that decodes to.
void finish_sum(const Codec& codec, std::span<const std::byte* const> others,
                std::span<const float> own, std::byte* wire, float* values) {
  CombineFinish finish;
  finish.gathered_ranks = kRateRanks;
  codec.combine(others, own.data(), others.size(), own.size(), finish, wire, values);
  use(wire);
}

// One pass of each kernel, and what they work on.
class KernelRun {
 public:
  explicit KernelRun(const Codec& codec)
      : codec_(codec),
        values_(kRateValues),
        sum_(kRateValues),
        wire_(codec.wire_bytes(kRateValues)),
        other_(wire_.size()),
        out_(codec.gathered(kRateRanks).wire_bytes(kRateValues)) {
    std::minstd_rand random(1);
    std::normal_distribution<float> normal;
    for (float& value : values_) value = normal(random);
    encode();
    codec_.encode(values_.data(), kRateValues, other_.data());
  }

  void encode() { codec_.encode(values_.data(), kRateValues, wire_.data()); }
  void decode() {
    codec_.decode(wire_.data(), kRateValues, sum_.data());
    use(sum_.data());
  }
  void combine(size_t peers) {
    const std::byte* const wires[] = {wire_.data(), other_.data()};
    finish_sum(codec_, std::span(wires).first(peers), values_, out_.data(), sum_.data());
  }

 private:
  static constexpr size_t kRateValues = 1 << 20;

  const Codec& codec_;
  std::vector<float> values_;
  std::vector<float> sum_;
  std::vector<std::byte> wire_;
  std::vector<std::byte> other_;
  std::vector<std::byte> out_;

 public:
  static constexpr double kBytes = kRateValues * sizeof(float);
};

CodecRates time_kernels(const Codec& codec) {
  constexpr size_t kRounds = 5;
  KernelRun run(codec);
  const SystemClock clock;
  std::vector<double> encode, decode, combine, further;
  for (size_t round = 0; round < kRounds; ++round) {
    encode.push_back(seconds_of(clock, 1, [&] { run.encode(); }));
    decode.push_back(seconds_of(clock, 1, [&] { run.decode(); }));
    const double one_s = seconds_of(clock, 1, [&] { run.combine(1); });
    const double two_s = seconds_of(clock, 1, [&] { run.combine(2); });
    combine.push_back(one_s);
    // Noise may make the second one free; reading it is not.
    further.push_back(std::max(two_s - one_s, one_s / 16));
  }
  const auto rate = [](std::vector<double>& seconds) {
    return KernelRun::kBytes / median(std::move(seconds));
  };
  CodecRates rates;
  rates.encode = rate(encode);
  rates.decode = rate(decode);
  rates.combine = rate(combine);
  rates.add = rate(further);
  return rates;
}

}  // namespace

Result<CodecRates> measured_codec_rates(std::string_view spec) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::string, CodecRates, std::less<>>;
  const Result<const Codec*> found = find_codec(spec, DataType::kFloat32, ReduceOp::kSum);
  if (!found.ok()) return found.status();
  if (found.value()->shared_sums() != nullptr) {
    return invalid_argument("codec " + found.value()->spec().to_string() +
                            " codes under scales that ranks agree on, so its kernels cannot be "
                            "timed alone");
  }
  const std::string name = found.value()->spec().to_string();
  const std::lock_guard lock(mutex);
  if (const auto old = known->find(name); old != known->end()) return old->second;
  return known->emplace(name, time_kernels(with_levels(found.value()))).first->second;
}

Result<CodecTiming> time_codec(std::string_view spec, std::span<const float> values, size_t rounds,
                               bool finishes) {
  const Result<const Codec*> found = find_codec(spec, DataType::kFloat32, ReduceOp::kSum);
  if (!found.ok()) return found.status();
  if (values.empty() || rounds == 0) {
    return invalid_argument("a codec's speed is measured on one value or more, once or more often");
  }
  const Codec& codec = with_levels(found.value());
  const size_t count = values.size();
  std::vector<std::byte> wire(codec.wire_bytes(count));
  std::vector<float> copy(values.begin(), values.end());
  std::vector<float> sum(count);
  std::vector<std::byte> out(finishes ? codec.gathered(kRateRanks).wire_bytes(count) : 0);
  const std::byte* const wires[] = {wire.data()};
  const auto run_copy = [&] {
    std::memcpy(copy.data(), values.data(), count * sizeof(float));
    use(copy.data());
  };
  const auto run_encode = [&] { codec.encode(values.data(), count, wire.data()); };
  const auto run_add = [&] {
    codec.combine(wires, copy.data(), 0, count, {}, nullptr, sum.data());
  };
  const auto run_finish = [&] { finish_sum(codec, wires, copy, out.data(), sum.data()); };
  const SystemClock clock;
  const size_t repeats = std::max<size_t>(1, kValuesPerSample / count);
  const auto pass = [&](const auto& run) {
    return seconds_of(clock, repeats, run) / static_cast<double>(repeats);
  };
  CodecTiming timing;
  for (size_t round = 0; round < rounds; ++round) {
    timing.copy.push_back(pass(run_copy));
    timing.encode.push_back(pass(run_encode));
    timing.decode_add.push_back(pass(run_add));
    if (finishes) timing.finish.push_back(pass(run_finish));
  }
  return timing;
}

}  // namespace tersum
