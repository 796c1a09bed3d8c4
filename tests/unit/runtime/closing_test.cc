// Closing a communicator while others use it: calls end or are refused, and whoever lets go last,
// the engine never ends on its own thread.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "runtime/communicator_impl.h"
#include "runtime/process_node.h"
#include "support/memory_store.h"
#include "transport/sim/sim_network.h"

namespace tersum::testing {
namespace {

constexpr CallOptions kExact{"exact", PlanKind::kAuto, 0};

// One rank of two in a process of its own, on a virtual clock; the other never calls.
struct LonelyRank {
  SimNetwork network{1};
  std::shared_ptr<Progress> progress = std::make_shared<Progress>(
      std::make_unique<Node>(network.clock(), network.make_node()), Progress::Thread::kNone);
  std::shared_ptr<Member> member;
  std::shared_ptr<CommunicatorImpl> communicator;

  LonelyRank() {
    std::vector<RankPlace> places(2);
    for (RankPlace& place : places) {
      place.process = progress->node().transport().self();
      place.local = true;
    }
    member = std::make_shared<Member>(progress, 5, 0, std::move(places), SliceLimits{}, false);
    progress->node().register_member(member);
    communicator =
        std::make_shared<CommunicatorImpl>(progress, member, CommunicatorOptions{}, false);
  }

  Result<std::shared_ptr<Operation>> start(OnDone on_done, void* context) {
    static std::array<float, 8> values{};
    return start_call(member,
                      {Collective::kAllReduce, values.data(), values.data(), values.size(),
                       DataType::kFloat32, ReduceOp::kSum, 0},
                      kExact, 60'000, 0, false, on_done, context);
  }
};

TEST(Closing, ACallThatStartsWhileOthersEndIsRefused) {
  LonelyRank rank;
  struct Attempt {
    LonelyRank& rank;
    Status end;
    Status next;
  } attempt{rank, {}, {}};
  // Called from within close(), when the call in flight is ended.
  const OnDone start_another = [](void* context, const Status& status) {
    auto* const attempt = static_cast<Attempt*>(context);
    attempt->end = status;
    attempt->next = attempt->rank.start(nullptr, nullptr).status();
  };
  ASSERT_TRUE(rank.start(start_another, &attempt).ok());
  rank.communicator->close();
  EXPECT_EQ(attempt.end.code(), StatusCode::kClosed) << attempt.end.to_string();
  EXPECT_EQ(attempt.next.code(), StatusCode::kClosed) << attempt.next.to_string();

  const std::weak_ptr<Progress> engine = rank.progress;
  rank.communicator.reset();
  rank.member.reset();
  rank.progress.reset();
  EXPECT_TRUE(engine.expired()) << "a call that started late would keep it, on its own thread";
}

TEST(Closing, CallsAfterCloseKeepTheFirstCause) {
  LonelyRank rank;
  rank.communicator->abort("enough");
  rank.communicator->close();
  EXPECT_EQ(rank.start(nullptr, nullptr).status().code(), StatusCode::kAborted);
}

TEST(Closing, NoLaneIsMadeByAClosedCommunicator) {
  LonelyRank rank;
  rank.communicator->close();
  float value = 0;
  const TensorRef tensor{&value, &value, 1};
  EXPECT_EQ(
      rank.communicator->start_coalesced({&tensor, 1}, DataType::kFloat32, ReduceOp::kSum, kExact)
          .wait()
          .code(),
      StatusCode::kClosed);
  EXPECT_EQ(rank.communicator->start_transfer(&value, 1, DataType::kFloat32, true, 1, 0, kExact)
                .wait()
                .code(),
            StatusCode::kClosed);
}

enum class Way { kAllReduce, kCoalesced };

class ClosingRace : public ::testing::TestWithParam<Way> {};

// Both threads drop their handles: a call that got in too late would hold the engine alone, from
// the engine's own thread.
TEST_P(ClosingRace, TwoThreadsThatStartAndCloseLeaveNoEngineBehind) {
  constexpr int kRounds = 100;
  // Calls in flight have memory of their own; that of a call is used again when it has ended.
  struct Turn {
    std::array<float, 64> values{};
    Work work;
  };
  for (int round = 0; round < kRounds; ++round) {
    auto store = std::make_shared<MemoryStore>();
    Communicator closer = Communicator::create(0, 1, store, {}, "closing").value();
    std::weak_ptr<Progress> engine = current_process_node();
    std::atomic<bool> started{false};
    Status last;
    std::thread other([&, starter = closer]() mutable {
      std::array<Turn, 4> turns;
      for (size_t i = 0; last.ok(); ++i) {
        auto& [values, work] = turns[i % turns.size()];
        if (i >= turns.size()) last = work.wait();
        const TensorRef tensor{values.data(), values.data(), values.size()};
        work = GetParam() == Way::kAllReduce
                   ? starter.start_all_reduce(values.data(), values.data(), values.size(),
                                              DataType::kFloat32, ReduceOp::kSum, kExact)
                   : starter.start_all_reduce_coalesced({&tensor, 1}, DataType::kFloat32,
                                                        ReduceOp::kSum, kExact);
        started = true;
      }
      for (Turn& turn : turns) static_cast<void>(turn.work.wait());
      starter = Communicator();
    });
    while (!started) std::this_thread::yield();
    for (int i = 0; i < round % 7; ++i) std::this_thread::yield();
    closer.close();
    closer = Communicator();
    other.join();
    EXPECT_EQ(last.code(), StatusCode::kClosed) << last.to_string();
    EXPECT_TRUE(engine.expired()) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ClosingRace, ::testing::Values(Way::kAllReduce, Way::kCoalesced),
                         [](const auto& info) {
                           return info.param == Way::kAllReduce ? "AllReduce" : "Coalesced";
                         });

}  // namespace
}  // namespace tersum::testing
