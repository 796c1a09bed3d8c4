// Handlers that fail while a peer is late, over the real engine: once a future has failed, the
// program frees its buffers, and nothing may touch them when the peer comes after all. With
// AddressSanitizer a late access is an error; without it these tests see the statuses alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_xla.h"
#include "platform/system_clock.h"
#include "runtime/device_world.h"
#include "runtime/node.h"
#include "runtime/progress.h"
#include "support/memory_store.h"
#include "transport/host_transport.h"
#include "xla/ffi_handlers.h"
#include "xla/ffi_invocation.h"
#include "xla/ffi_world_gate.h"

namespace tersum::xla_ffi {
namespace {

using ::tersum::testing::FakeFrame;
using ::tersum::testing::MemoryStore;
using ::testing::Each;
using ::testing::HasSubstr;
using World = Result<std::shared_ptr<DeviceWorld>>;

// The handler's device comes first; the last one is late.
const std::vector<int64_t> kDevices = {0, 1, 2};
const std::vector<int64_t> kOtherGroup = {2, 1, 0};
// Many slices per part, so that device 0 and device 1 are in the middle of the sum at the deadline.
constexpr size_t kCount = 600'001;
constexpr int64_t kShort_ms = 100;
constexpr int64_t kLong_ms = 30'000;

struct Ending {
  std::latch done{1};
  Status status;
};
void end(void* context, const Status& status) {
  auto* const ending = static_cast<Ending*>(context);
  ending->status = status;
  ending->done.count_down();
}

struct Buffers {
  std::vector<float> input = std::vector<float>(kCount, 1.0F);
  std::vector<float> output = std::vector<float>(kCount, -1.0F);
};

struct Kind {
  const char* name;
  TransportKind transport;
  bool one_process;
};

class LatePeers : public ::testing::TestWithParam<Kind> {
 protected:
  LatePeers() {
    worlds_.resize(kDevices.size());
    if (GetParam().one_process) {
      const auto world = DeviceWorld::create(0, 1, kDevices, nullptr, {}, "late").value();
      worlds_.assign(kDevices.size(), world);
    } else {
      make_worlds_of_processes();
    }
    WorldGate::instance().configure(hooks(0));
    for (size_t i = 1; i < kDevices.size(); ++i) gates_[i].configure(hooks(i));
  }
  ~LatePeers() override {
    WorldGate::instance().configure({});
    for (WorldGate& gate : gates_) gate.configure({});
    for (const auto& world : worlds_) world->close();
  }

  void make_worlds_of_processes() {
    static const SystemClock clock;
    static SystemRandom random;
    const auto store = std::make_shared<MemoryStore>();
    CommunicatorOptions options;
    options.transport = GetParam().transport;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kDevices.size(); ++i) {
      threads.emplace_back([&, i] {
        HostTransportOptions transport;
        transport.clock = &clock;
        transport.random = &random;
        const auto process = std::make_shared<Progress>(
            std::make_unique<Node>(clock, std::move(make_host_transport(transport)).value()));
        worlds_[i] =
            create_world_on(process, static_cast<int>(i), static_cast<int>(kDevices.size()),
                            std::span(kDevices).subspan(i, 1), store, options, "late")
                .value();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  WorldHooks hooks(size_t process) const {
    const auto own = worlds_[process];
    const bool alone = GetParam().one_process;
    const auto facts = [process, alone] {
      if (alone) return ProcessFacts{0, 1, kDevices};
      return ProcessFacts{
          static_cast<int>(process), static_cast<int>(kDevices.size()), {kDevices[process]}};
    };
    return {facts, [own](const ProcessFacts&) { return World(own); },
            [own](const ProcessFacts&) { return World(own); }};
  }

  // Device 0, as XLA calls it.
  static std::unique_ptr<XLA_FFI_Future> call_handler(const std::vector<int64_t>& group,
                                                      int64_t run_id, int64_t timeout_ms,
                                                      Buffers& buffers) {
    FakeFrame frame(0, run_id);
    frame.set("groups", group);
    frame.set("group_size", static_cast<int64_t>(group.size()));
    frame.set("fingerprint", int64_t{5});
    frame.set("operation", int64_t{3});
    frame.set("codec", "exact");
    frame.set("plan", "two_step");
    frame.set("timeout_ms", timeout_ms);
    frame.set("wire_bf16", false);
    frame.set("channels", std::vector<int64_t>{0});
    frame.add_argument(XLA_FFI_DataType_F32, buffers.input.data(), {static_cast<int64_t>(kCount)});
    frame.add_result(XLA_FFI_DataType_F32, buffers.output.data(), {static_cast<int64_t>(kCount)});
    std::unique_ptr<XLA_FFI_Future> future;
    EXPECT_EQ(frame.call(handler_table()[0].handler, future), nullptr);
    return future;
  }

  // Devices 1 and 2: what the handler makes of such a frame in a process of their own.
  void start_other(size_t device, const std::vector<int64_t>& group, int64_t run_id,
                   int64_t timeout_ms, Buffers& buffers, Ending& ending) {
    const Operand operand{buffers.input.data(), buffers.output.data(), kCount, DataType::kFloat32,
                          0};
    Invocation it;
    it.device = kDevices[device];
    it.run_id = run_id;
    it.groups = group;
    it.group_size = static_cast<int64_t>(group.size());
    it.operation = {5, 3};
    it.codec = "exact";
    it.plan = "two_step";
    it.timeout_ms = timeout_ms;
    it.operands = {&operand, 1};
    start_invocation(gates_[device], occurrences_[device], it, end, &ending);
  }

  // All three, in time. `error` is what each ends with; empty: with the sum.
  void call_together(const std::vector<int64_t>& group, const std::string& error) {
    const int64_t run_id = next_run_id();
    std::vector<Buffers> buffers(kDevices.size());
    std::vector<Ending> endings(kDevices.size());
    const auto future = call_handler(group, run_id, kLong_ms, buffers[0]);
    for (const size_t i : {1, 2}) {
      start_other(i, group, run_id, kLong_ms, buffers[i], endings[i]);
    }
    std::vector<std::string> errors = {future->wait()};
    for (const size_t i : {1, 2}) {
      endings[i].done.wait();
      errors.emplace_back(endings[i].status.message());
    }
    if (!error.empty()) {
      EXPECT_THAT(errors, Each(HasSubstr(error)));
      return;
    }
    EXPECT_THAT(errors, Each(""));
    for (const Buffers& each : buffers)
      EXPECT_TRUE(each.output == std::vector<float>(kCount, 3.0F));
  }

  // The handlers count occurrences of a run for as long as the process lives.
  static int64_t next_run_id() {
    static int64_t run_id = 0;
    return ++run_id;
  }

  std::vector<std::shared_ptr<DeviceWorld>> worlds_;
  WorldGate gates_[3];
  OccurrenceCounter occurrences_[3];
};

TEST_P(LatePeers, NothingTouchesBuffersOfAFutureThatHasFailed) {
  call_together(kDevices, "");
  const int64_t run_id = next_run_id();
  Ending second, late;
  {
    Buffers here, there;
    const auto future = call_handler(kDevices, run_id, kShort_ms, here);
    start_other(1, kDevices, run_id, kShort_ms, there, second);
    EXPECT_THAT(future->wait(), HasSubstr("100 ms"));
    EXPECT_EQ(future->error->code, XLA_FFI_Error_Code_DEADLINE_EXCEEDED);
    second.done.wait();
    EXPECT_EQ(second.status.code(), StatusCode::kTimeout) << second.status.to_string();
    EXPECT_TRUE(here.input == Buffers().input);
  }  // freed: ASan watches them from here on
  Buffers behind;
  start_other(2, kDevices, run_id, kLong_ms, behind, late);
  late.done.wait();
  EXPECT_EQ(late.status.code(), StatusCode::kTimeout) << late.status.to_string();
  EXPECT_TRUE(behind.input == Buffers().input);
  // A missed deadline ends the group with its first cause; another group of these devices goes on.
  call_together(kDevices, "100 ms");
  call_together(kOtherGroup, "");
}

// The whole sum is on its way when its deadline comes, or it is not: either way the memory is the
// program's when the future is fulfilled.
TEST_P(LatePeers, NothingTouchesBuffersWhoseDeadlineCameInTheMiddle) {
  call_together(kDevices, "");
  const int64_t run_id = next_run_id();
  std::vector<Ending> endings(kDevices.size());
  auto last = std::make_unique<Buffers>();
  {
    auto here = std::make_unique<Buffers>(), there = std::make_unique<Buffers>();
    const auto future = call_handler(kDevices, run_id, 2, *here);
    start_other(1, kDevices, run_id, kLong_ms, *there, endings[1]);
    start_other(2, kDevices, run_id, kLong_ms, *last, endings[2]);
    const bool in_time = future->wait().empty();
    EXPECT_EQ(here->output == std::vector<float>(kCount, 3.0F), in_time);
    here.reset();
    endings[1].done.wait();
    there.reset();
  }
  endings[2].done.wait();
  last.reset();
  call_together(kOtherGroup, "");
}

INSTANTIATE_TEST_SUITE_P(Worlds, LatePeers,
                         ::testing::Values(Kind{"local", TransportKind::kAuto, true},
                                           Kind{"tcp", TransportKind::kTcp, false},
                                           Kind{"shm", TransportKind::kSharedMemory, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tersum::xla_ffi
