// The small parts of the platform layer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "platform/cache_size.h"
#include "platform/cpu_count.h"
#include "platform/cpu_relax.h"
#include "platform/environment.h"
#include "platform/fp_control.h"
#include "platform/host_identity.h"
#include "platform/shared_memory.h"
#include "platform/small_file.h"
#include "platform/system_clock.h"
#include "platform/system_error.h"
#include "tersum/core_distance.h"

namespace tersum {
namespace {

TEST(CacheSize, IsThatOfTheHighestLevel) {
  const std::string folder = ::testing::TempDir() + "cache_size_" + std::to_string(getpid());
  const auto describe = [&](int index, const std::string& level, const std::string& size) {
    const std::string own = folder + "/index" + std::to_string(index) + "/";
    ASSERT_EQ(make_directories_above(own), 0);
    ASSERT_EQ(replace_small_file(own + "level", level, folder), 0);
    ASSERT_EQ(replace_small_file(own + "size", size, folder), 0);
  };
  EXPECT_EQ(last_level_cache_bytes(folder), 0u) << "nothing is said";
  describe(0, "1\n", "48K\n");
  describe(1, "1\n", "32K\n");
  EXPECT_EQ(last_level_cache_bytes(folder), 48u << 10);
  describe(2, "3\n", "32M\n");
  describe(3, "2\n", "2048K\n");
  EXPECT_EQ(last_level_cache_bytes(folder), 32u << 20);
  describe(4, "4\n", "large\n");
  EXPECT_EQ(last_level_cache_bytes(folder), 0u) << "no number";
  std::filesystem::remove_all(folder);
}

TEST(CpuCount, CountsEachOfSeveralSetsOnce) {
  std::string cpus;
  EXPECT_EQ(count_cpus(cpus), 0);
  unite_cpus(cpus, "3");   // CPUs 0 and 1
  unite_cpus(cpus, "18");  // CPUs 0 and 7
  unite_cpus(cpus, "");
  EXPECT_EQ(cpus, "38");
  EXPECT_EQ(count_cpus(cpus), 3);
  for (const char* none : {"", "0", "30", "3F", "3 ", "0x3", "-1"}) EXPECT_FALSE(are_cpus(none));
  for (const char* some : {"1", "f", "00000000000000000000000000000001"}) {
    EXPECT_TRUE(are_cpus(some)) << some;
  }
}

TEST(CpuCount, OwnOnesFollowWhatTheProcessIsAllowed) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_TRUE(are_cpus(own_cpus()));
  EXPECT_EQ(count_cpus(own_cpus()), CPU_COUNT(&allowed));
  size_t last = 0;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) last = CPU_ISSET(cpu, &allowed) ? cpu : last;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const std::string bound = own_cpus();
  ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(bound, std::string(last / 4, '0') + "1248"[last % 4]);
}

TEST(SystemClock, NeverGoesBackAndMovesWithSleep) {
  const SystemClock clock;
  const int64_t start = clock.now_ns();
  int64_t last = start;
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock.now_ns();
    ASSERT_GE(now, last);
    last = now;
    spin_pause();
  }
  sleep_thread_ns(2'000'000);
  yield_thread();
  EXPECT_GE(clock.now_ns() - start, 2'000'000);
}

TEST(SystemRandom, DoesNotRepeat) {
  SystemRandom random;
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.next());
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Environment, TellsUnsetFromEmpty) {
  ASSERT_EQ(setenv("TERSUM_TEST_VARIABLE", "", 1), 0);
  EXPECT_EQ(environment_variable("TERSUM_TEST_VARIABLE"), "");
  ASSERT_EQ(setenv("TERSUM_TEST_VARIABLE", "x", 1), 0);
  EXPECT_EQ(environment_variable("TERSUM_TEST_VARIABLE"), "x");
  unsetenv("TERSUM_TEST_VARIABLE");
  EXPECT_FALSE(environment_variable("TERSUM_TEST_VARIABLE").has_value());
}

TEST(HostIdentity, IsStable) {
  EXPECT_EQ(boot_id(), boot_id());
  EXPECT_EQ(boot_id().size(), 36u);
  EXPECT_EQ(network_namespace_id().rfind("net:[", 0), 0u) << network_namespace_id();
}

TEST(SystemError, NamesTheCause) {
  const Status status = system_error(StatusCode::kUnavailable, "cannot do it", ECONNREFUSED);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "cannot do it: Connection refused");
}

#if defined(__x86_64__)
TEST(CoreDistance, RefusesWhatIsNoCpuAndIsNothingToOneself) {
  EXPECT_EQ(core_distance_ns(-1, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(core_distance_ns(0, 1 << 20).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(core_distance_ns(0, 0).value(), 0.0);
}

TEST(CoreDistance, IsPositiveOrSaysWhyItIsNot) {
  const Result<double> distance = core_distance_ns(0, 1);
  if (!distance.ok()) {
    EXPECT_EQ(distance.status().code(), StatusCode::kUnavailable);
    GTEST_SKIP() << distance.status().message();
  }
  // A core cannot answer in less than a few cycles.
  EXPECT_GT(distance.value(), 1.0);
}

TEST(FpControl, DenormalsLiveInsideAndAreFlushedAgainAfterwards) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
  volatile float tiny = 1e-38f;
  volatile float half = 0.5f;
  {
    const FpControlGuard guard;
    EXPECT_EQ(_mm_getcsr() & 0xFFC0u, 0x1F80u);
    volatile float product = tiny * half;
    EXPECT_GT(product, 0.0f);
  }
  volatile float flushed = tiny * half;
  EXPECT_EQ(flushed, 0.0f);
  _mm_setcsr(before);
}

TEST(FpControl, RoundsToNearestWhateverTheCallerSet) {
  ASSERT_EQ(fesetround(FE_UPWARD), 0);
  volatile float one = 1.0f;
  volatile float dust = 1e-20f;
  volatile float inside = 0;
  {
    const FpControlGuard guard;
    inside = one + dust;
  }
  volatile float outside = one + dust;
  EXPECT_EQ(fegetround(), FE_UPWARD);
  fesetround(FE_TONEAREST);
  EXPECT_EQ(inside, 1.0f);
  EXPECT_GT(outside, 1.0f);
}
#endif

TEST(SharedMemory, APeerSeesBytesButCannotWriteOrCut) {
  Result<SharedMemory> own = SharedMemory::create("tersum-test", 8192);
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  std::memcpy(own->base(), "hello", 6);
  Result<SharedMemory> peer = SharedMemory::map_peer(UniqueFd(dup(own->fd())), 8192);
  ASSERT_TRUE(peer.ok()) << peer.status().to_string();
  EXPECT_STREQ(reinterpret_cast<const char*>(peer->base()), "hello");
  EXPECT_NE(ftruncate(own->fd(), 4096), 0);
  EXPECT_NE(ftruncate(own->fd(), 1 << 20), 0);
  void* writable = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, own->fd(), 0);
  EXPECT_EQ(writable, MAP_FAILED);
  if (writable != MAP_FAILED) munmap(writable, 4096);
}

TEST(SharedMemory, RefusesAPeersFileThatIsNotWhatItSaid) {
  Result<SharedMemory> own = SharedMemory::create("tersum-test", 8192);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(SharedMemory::map_peer(UniqueFd(dup(own->fd())), 16384).status().code(),
            StatusCode::kProtocol);
  UniqueFd unsealed(memfd_create("tersum-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(SharedMemory::map_peer(std::move(unsealed), 8192).status().code(),
            StatusCode::kProtocol);
  UniqueFd file(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(SharedMemory::map_peer(std::move(file), 8192).status().code(), StatusCode::kProtocol);
}

}  // namespace
}  // namespace tersum
