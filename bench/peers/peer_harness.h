// Peer harness: what every library's all-reduce is measured with, so that all are measured alike.
//
// One process per rank. It obeys the lines of its own FIFO, `FOLDER/in.RANK`, and sleeps in read()
// between them, so that a contender that is not being measured costs nothing; rank 0 answers in
// `FOLDER/out`, and every other rank writes a byte to `FOLDER/done` when it has left the library:
// the last ones may still spin in there when rank 0 answers. A closed FIFO (the tool is gone) ends
// the process. Commands:
//
//   time COUNT BATCHES CALLS IN_PLACE   1 + BATCHES times CALLS calls, all back to back; the first
//                                       CALLS are not timed: "ok SECONDS…", a batch's over its
//                                       calls on the slowest rank
//   check COUNT IN_PLACE                one call, every element compared: "ok WRONG", over all
//                                       ranks
//   quit
//
// Data are multiples of 2^-10 between -1 and 1, never zero, so that every order of summation gives
// the exact sum in float32, and results of exact libraries are compared for equality.
//
// Thread safety: none; one thread. `Library` is what the measured library offers:
//   int rank(), size();
//   float slack();                                               0: results must be exact
//   void all_reduce(const float* in, float* out, size_t count);  in == out: in place
//   void max(double* values, size_t count);                      over all ranks, in place
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tersum::peers {

// Keeps this thread, and those that it starts from now on, to the CPUs in line `rank` of
// `FOLDER/cpus`: before the library starts any, but for MPI, which tells a rank its number later.
// False without such a line, as the tool asks where the kernel is to choose, or if it is refused.
inline bool bind_rank(const std::string& folder, int rank) {
  std::ifstream lines(folder + "/cpus");
  std::string line;
  for (int i = 0; i <= rank; ++i) {
    if (!std::getline(lines, line)) return false;
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  std::istringstream words(line);
  for (size_t cpu = 0; words >> cpu && cpu < CPU_SETSIZE;) CPU_SET(cpu, &cpus);
  return sched_setaffinity(0, sizeof cpus, &cpus) == 0;
}

// Of the commands above; the tool refuses a program that was built for others.
inline constexpr char kProtocol[] = "3";

// Inputs repeat after this many elements, an odd number, so that a library that mixes up its
// chunks is found out while filling an array costs no more than copying.
inline constexpr size_t kPeriod = 262'139;

// Element `i` of a rank's input: k / 1024 with 0 < |k| <= 1024, from a hash of both numbers.
inline float input_value(int rank_number, size_t i) {
  const auto rank = static_cast<uint64_t>(rank_number);
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ULL + (rank + 1) * 0xD1B54A32D192ED03ULL;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 32;
  const auto k = static_cast<int>(x & 1023) + 1;
  return static_cast<float>((x & 1024) != 0 ? k : -k) / 1024.0F;
}

template <typename Library>
class Harness {
 public:
  // `bound`: what bind_rank() said.
  Harness(Library& library, const std::string& folder, bool bound)
      : library_(library),
        folder_(folder),
        bound_(bound),
        rank_(library.rank()),
        size_(library.size()) {
    for (size_t i = 0; i < kPeriod; ++i) pattern_.push_back(input_value(rank_, i));
  }

  int run() {
    std::ifstream commands(folder_ + "/in." + std::to_string(rank_));
    answers_.open(folder_ + (rank_ == 0 ? "/out" : "/done"));
    if (rank_ == 0) answer((bound_ ? "ready bound " : "ready free ") + std::string(kProtocol));
    std::string line;
    while (std::getline(commands, line)) {
      std::istringstream words(line);
      std::string verb;
      words >> verb;
      if (verb == "quit") return 0;
      size_t count = 0;
      size_t batches = 0;
      size_t calls = 0;
      int in_place = 0;
      words >> count;
      if (verb == "time") words >> batches >> calls;
      words >> in_place;
      if (!words || (verb != "time" && verb != "check")) return 2;
      resize(count, in_place != 0);
      if (verb == "time") {
        time_batches(count, batches, calls, in_place != 0);
      } else {
        check(count, in_place != 0);
      }
    }
    return 1;
  }

 private:
  void answer(const std::string& text) {
    if (rank_ == 0) {
      answers_ << text << std::endl;
    } else {
      answers_ << '.' << std::flush;
    }
  }

  // Memory is kept from call to call and written before any, so that no timed call meets a fresh
  // page.
  void resize(size_t count, bool in_place) {
    if (out_.size() != count) out_ = std::vector<float>(count, 1.0F);
    if (in_place) {
      in_ = {};
    } else if (in_.size() != count) {
      in_ = std::vector<float>(count);
      fill(in_);
    }
  }

  void fill(std::vector<float>& values) const {
    for (size_t i = 0; i < values.size(); i += kPeriod) {
      const size_t step = std::min(kPeriod, values.size() - i);
      std::memcpy(values.data() + i, pattern_.data(), step * sizeof(float));
    }
  }

  void call(size_t count, bool in_place) {
    library_.all_reduce(in_place ? out_.data() : in_.data(), out_.data(), count);
  }

  // In place calls start from the input again in each turn: every call multiplies the values.
  void prepare(bool in_place) {
    if (in_place) fill(out_);
    double together = 0;
    library_.max(&together, 1);
  }

  void time_batches(size_t count, size_t batches, size_t calls, bool in_place) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds(batches);
    prepare(in_place);
    for (size_t i = 0; i < calls; ++i) call(count, in_place);
    auto before = Clock::now();
    for (double& taken : seconds) {
      for (size_t i = 0; i < calls; ++i) call(count, in_place);
      const auto after = Clock::now();
      taken = std::chrono::duration<double>(after - before).count() / static_cast<double>(calls);
      before = after;
    }
    library_.max(seconds.data(), batches);
    std::ostringstream text;
    text.precision(9);
    text << "ok";
    for (const double taken : seconds) text << ' ' << taken;
    answer(text.str());
  }

  void check(size_t count, bool in_place) {
    for (float& value : out_) value = -7.0F;
    prepare(in_place);
    call(count, in_place);
    std::vector<float> sums(kPeriod);
    for (int rank = 0; rank < size_; ++rank) {
      for (size_t i = 0; i < kPeriod; ++i) sums[i] += input_value(rank, i);
    }
    double wrong = 0;
    for (size_t i = 0; i < count; ++i) {
      const float error = std::abs(out_[i] - sums[i % kPeriod]);
      wrong += error <= library_.slack() ? 0 : 1;  // a NaN is wrong, too
    }
    library_.max(&wrong, 1);
    answer("ok " + std::to_string(static_cast<uint64_t>(wrong)));
  }

  Library& library_;
  std::string folder_;
  bool bound_;
  int rank_;
  int size_;
  std::ofstream answers_;
  std::vector<float> pattern_;
  std::vector<float> in_;
  std::vector<float> out_;
};

}  // namespace tersum::peers
