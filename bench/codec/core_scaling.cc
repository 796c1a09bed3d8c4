#include "core_scaling.h"

#include <algorithm>
#include <barrier>
#include <thread>

#include "timed_kernels.h"

namespace tersum {
namespace {

// About 250 us per sample: long against the difference between two threads' starts.
constexpr size_t kValuesPerSample = 3'000'000;

// seconds[round][kernel] of one thread: alone (only thread 0 fills it) and with all others.
struct Samples {
  std::vector<std::vector<double>> alone;
  std::vector<std::vector<double>> together;
};

class ScalingRun {
 public:
  ScalingRun(const Codec& codec, size_t values, size_t cores, size_t rounds)
      : codec_(codec),
        values_(values),
        rounds_(rounds),
        repeats_(std::max<size_t>(1, kValuesPerSample / values)),
        barrier_(static_cast<ptrdiff_t>(cores)),
        samples_(cores) {}

  std::vector<Samples> run() {
    std::vector<std::thread> threads;
    for (size_t core = 1; core < samples_.size(); ++core) {
      threads.emplace_back([this, core] { run_core(core); });
    }
    run_core(0);
    for (auto& thread : threads) thread.join();
    return samples_;
  }

 private:
  void run_core(size_t core) {
    Arrays arrays(codec_, values_);
    const std::vector<Kernel> kernels = kernels_of(codec_, arrays, values_);
    const SystemClock clock;
    Samples& samples = samples_[core];
    for (size_t round = 0; round < rounds_; ++round) {
      samples.alone.emplace_back();
      samples.together.emplace_back();
      for (const Kernel& kernel : kernels) {
        barrier_.arrive_and_wait();
        if (core == 0) samples.alone.back().push_back(seconds_of(clock, kernel.run, repeats_));
        barrier_.arrive_and_wait();
        samples.together.back().push_back(seconds_of(clock, kernel.run, repeats_));
      }
    }
  }

  const Codec& codec_;
  size_t values_;
  size_t rounds_;
  size_t repeats_;
  std::barrier<> barrier_;
  std::vector<Samples> samples_;
};

}  // namespace

std::vector<KernelScaling> measure_scaling(const Codec& codec, size_t values, size_t cores,
                                           size_t rounds) {
  const std::vector<Samples> samples = ScalingRun(codec, values, cores, rounds).run();
  const size_t kernels = samples[0].alone[0].size();
  std::vector<std::vector<double>> times(kernels);
  std::vector<std::vector<double>> to_memcpy(kernels);
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t k = 0; k < kernels; ++k) {
      double sum = 0;
      for (const Samples& core : samples) {
        sum += samples[0].alone[round][k] / core.together[round][k];
      }
      times[k].push_back(sum);
      to_memcpy[k].push_back(sum / times[0][round]);
    }
  }
  Arrays arrays(codec, 1);
  const std::vector<Kernel> named = kernels_of(codec, arrays, 1);
  std::vector<KernelScaling> scalings;
  for (size_t k = 0; k < kernels; ++k) {
    scalings.push_back({named[k].name, median(times[k]), median(to_memcpy[k])});
  }
  return scalings;
}

}  // namespace tersum
