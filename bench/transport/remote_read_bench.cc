// remote_read_bench: how long an exact all-reduce takes that copies as little as separate processes
// can: ranks read each other's arrays (process_vm_readv) piece by piece into memory that stays in
// L2, add them up where their own values are, and write the sums to all others (process_vm_writev)
// while they are still there; with --pull, the others read them in the end. No slices, no messages,
// nothing that could fail: a floor for
//   tersum perf --transport shm --codec exact --in-place
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <new>
#include <thread>
#include <vector>

#include "base/median.h"
#include "codec/codec.h"
#include "platform/system_clock.h"

namespace tersum {
namespace {

constexpr uint32_t kRanksMax = 16;

struct Options {
  std::vector<uint32_t> ranks = {2, 4, 8};
  size_t bytes = size_t{16} << 20;
  size_t piece_bytes = size_t{128} << 10;
  int rounds = 41;
  int calls = 4;
  bool pull = false;
};

// In memory that all ranks map. Ranks wait as theirs do that outnumber the cores: a moment, then
// they yield.
struct Meeting {
  std::atomic<uint32_t> arrived = 0;
  std::atomic<uint32_t> turn = 0;
  std::atomic<bool> refused = false;
  std::array<pid_t, kRanksMax> process = {};
  std::array<float*, kRanksMax> array = {};

  void wait(uint32_t ranks) {
    const uint32_t mine = turn.load();
    if (arrived.fetch_add(1) + 1 == ranks) {
      arrived = 0;
      turn = mine + 1;
      return;
    }
    for (int look = 0; turn.load() == mine; ++look) {
      if (look > 50) std::this_thread::yield();
    }
  }
};

class Rank {
 public:
  Rank(Meeting& meeting, uint32_t rank, uint32_t ranks, const Options& options)
      : meeting_(meeting),
        rank_(rank),
        ranks_(ranks),
        chunk_(options.bytes / sizeof(float) / ranks),
        piece_(options.piece_bytes / sizeof(float)),
        pull_(options.pull),
        array_(chunk_ * ranks, 1.0F),
        pieces_(ranks, std::vector<float>(piece_)) {
    for (uint32_t peer = 1; peer < ranks; ++peer) {
      wires_.push_back(reinterpret_cast<const std::byte*>(pieces_[peer].data()));
    }
    meeting_.process[rank] = getpid();
    meeting_.array[rank] = array_.data();
    // Where Yama restricts it, only to those who are told.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  }

  void call(const Codec& codec) {
    for (size_t at = 0; at < chunk_; at += piece_) {
      const size_t count = std::min(piece_, chunk_ - at);
      float* const own = array_.data() + rank_ * chunk_ + at;
      for (uint32_t k = 1; k < ranks_; ++k) {
        read((rank_ + k) % ranks_, rank_ * chunk_ + at, count, pieces_[k].data());
      }
      codec.combine(wires_, own, 0, count, {ReduceOp::kAverage, ranks_}, nullptr, own);
      for (uint32_t k = 1; !pull_ && k < ranks_; ++k) {
        write((rank_ + k) % ranks_, rank_ * chunk_ + at, count, own);
      }
    }
    meeting_.wait(ranks_);
    if (pull_) pull_sums();
  }

 private:
  void pull_sums() {
    for (uint32_t k = 1; k < ranks_; ++k) {
      const uint32_t peer = (rank_ + k) % ranks_;
      for (size_t at = 0; at < chunk_; at += piece_) {
        const size_t first = peer * chunk_ + at;
        read(peer, first, std::min(piece_, chunk_ - at), array_.data() + first);
      }
    }
    meeting_.wait(ranks_);
  }

  void read(uint32_t peer, size_t first, size_t count, float* to) {
    const iovec here = {to, count * sizeof(float)};
    const iovec there = {meeting_.array[peer] + first, count * sizeof(float)};
    const ssize_t got = process_vm_readv(meeting_.process[peer], &here, 1, &there, 1, 0);
    if (got != static_cast<ssize_t>(count * sizeof(float))) meeting_.refused = true;
  }

  void write(uint32_t peer, size_t first, size_t count, float* from) {
    const iovec here = {from, count * sizeof(float)};
    const iovec there = {meeting_.array[peer] + first, count * sizeof(float)};
    const ssize_t put = process_vm_writev(meeting_.process[peer], &here, 1, &there, 1, 0);
    if (put != static_cast<ssize_t>(count * sizeof(float))) meeting_.refused = true;
  }

  Meeting& meeting_;
  uint32_t rank_;
  uint32_t ranks_;
  size_t chunk_;
  size_t piece_;
  bool pull_;
  std::vector<float> array_;
  std::vector<std::vector<float>> pieces_;
  std::vector<const std::byte*> wires_;
};

void bind(uint32_t rank, uint32_t ranks) {
  const uint32_t cpus = std::max(1U, std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(rank * std::min(cpus, ranks) / ranks, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void run_rank(Meeting& meeting, uint32_t index, uint32_t ranks, const Options& options) {
  bind(index, ranks);
  const SystemClock clock;
  const Codec& codec = *find_codec("exact", DataType::kFloat32, ReduceOp::kAverage).value();
  Rank rank(meeting, index, ranks, options);
  std::vector<double> times_us;
  meeting.wait(ranks);
  // Calls back to back: of ranks that share a core, the one that looks at the clock may come last.
  for (int round = 0; round < options.rounds; ++round) {
    const int64_t start = clock.now_ns();
    for (int call = 0; call < options.calls; ++call) rank.call(codec);
    times_us.push_back(static_cast<double>(clock.now_ns() - start) / 1e3 / options.calls);
  }
  if (index != 0) return;
  if (meeting.refused) {
    std::printf("%u ranks: skipped, this system lets no process read another's memory\n", ranks);
  } else {
    std::printf("%u ranks %10zu B  %10.1f us, median of %d  %10.1f us at best\n", ranks,
                options.bytes, median(times_us), options.rounds,
                *std::min_element(times_us.begin(), times_us.end()));
  }
  std::fflush(stdout);
}

int run_ranks(uint32_t ranks, const Options& options) {
  void* const shared =
      mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  auto* const meeting = new (shared) Meeting;
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    run_rank(*meeting, rank, ranks, options);
    _exit(0);
  }
  run_rank(*meeting, 0, ranks, options);
  while (wait(nullptr) > 0) continue;
  return munmap(shared, sizeof(Meeting));
}

}  // namespace
}  // namespace tersum

int main(int argc, char** argv) {
  tersum::Options options;
  CLI::App app("Exact sums of processes that read each other's memory");
  app.add_option("--ranks", options.ranks, "how many, one after the other")
      ->delimiter(',')
      ->check(CLI::Range(2U, tersum::kRanksMax));
  app.add_option("--bytes", options.bytes, "of float32 a rank, in place")
      ->check(CLI::Range(size_t{4096}, size_t{1} << 40));
  app.add_option("--piece-bytes", options.piece_bytes, "of one read")
      ->check(CLI::Range(size_t{4096}, size_t{1} << 30));
  app.add_option("--rounds", options.rounds, "of calls; the median of a call is shown")
      ->check(CLI::Range(1, 100000));
  app.add_option("--calls", options.calls, "of a round, back to back")
      ->check(CLI::Range(1, 100000));
  app.add_flag("--pull", options.pull, "sums are read by all others, not written to them");
  CLI11_PARSE(app, argc, argv);
  for (const uint32_t ranks : options.ranks) {
    if (const int failed = tersum::run_ranks(ranks, options); failed != 0) return failed;
  }
  return 0;
}
