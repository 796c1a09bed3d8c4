// The handlers, called through XLA's C API with frames built by hand, over a world of one process.

#include "xla/ffi_handlers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fake_device_world.h"
#include "fake_xla.h"
#include "xla/ffi_world_gate.h"

namespace tersum::xla_ffi {
namespace {

using ::tersum::testing::FakeDeviceWorld;
using ::tersum::testing::FakeFrame;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using World = Result<std::shared_ptr<DeviceWorld>>;

void* handler(std::string_view target) {
  for (const HandlerEntry& entry : handler_table()) {
    if (entry.target == target) return entry.handler;
  }
  return nullptr;
}

class HandlersTest : public ::testing::Test {
 protected:
  HandlersTest() {
    WorldGate::instance().configure({[] { return ProcessFacts{0, 1, {0, 2048}}; },
                                     [this](const ProcessFacts&) { return World(world_); },
                                     [this](const ProcessFacts&) { return World(world_); }});
  }
  ~HandlersTest() override { WorldGate::instance().configure({}); }

  static std::unique_ptr<FakeFrame> frame(int32_t device, int64_t run_id = 1, size_t operands = 1) {
    auto it = std::make_unique<FakeFrame>(device, run_id);
    it->set("groups", std::vector<int64_t>{2048, 0});
    it->set("group_size", int64_t{2});
    it->set("fingerprint", int64_t{-77});
    it->set("operation", int64_t{3});
    it->set("codec", "int8/64");
    it->set("plan", "auto");
    it->set("timeout_ms", int64_t{5000});
    it->set("wire_bf16", false);
    it->set("channels", std::vector<int64_t>(operands, 0));
    return it;
  }

  std::shared_ptr<FakeDeviceWorld> world_ = std::make_shared<FakeDeviceWorld>();
};

TEST_F(HandlersTest, sums_a_tuple_after_the_frames_are_gone) {
  std::vector<float> a = {1, 2, 3, 4}, b = {10, 20, 30, 40}, sum_a(4), sum_b(4);
  float c = 5, d = 7, sum_c = 0, sum_d = 0;
  std::unique_ptr<XLA_FFI_Future> first, second;
  {
    auto here = frame(0, 1, 2);
    here->add_argument(XLA_FFI_DataType_F32, a.data(), {2, 2});
    here->add_argument(XLA_FFI_DataType_F32, &c, {});
    here->add_result(XLA_FFI_DataType_F32, sum_a.data(), {2, 2});
    here->add_result(XLA_FFI_DataType_F32, &sum_c, {});
    ASSERT_EQ(here->call(handler("tersum_all_reduce"), first), nullptr);
  }
  {
    auto there = frame(2048, 1, 2);
    there->add_argument(XLA_FFI_DataType_F32, b.data(), {2, 2});
    there->add_argument(XLA_FFI_DataType_F32, &d, {});
    there->add_result(XLA_FFI_DataType_F32, sum_b.data(), {2, 2});
    there->add_result(XLA_FFI_DataType_F32, &sum_d, {});
    ASSERT_EQ(there->call(handler("tersum_all_reduce"), second), nullptr);
  }
  EXPECT_EQ(first->wait(), "");
  EXPECT_EQ(second->wait(), "");
  EXPECT_THAT(sum_a, ElementsAre(11, 22, 33, 44));
  EXPECT_EQ(sum_b, sum_a);
  EXPECT_EQ(sum_c, 12);
  EXPECT_EQ(sum_d, 12);
  for (const auto& seen : world_->seen()) {
    EXPECT_THAT(seen.group, ElementsAre(2048, 0));
    EXPECT_EQ(seen.codec, "int8/64");
    EXPECT_EQ(seen.timeout_ms, 5000);
  }
}

TEST_F(HandlersTest, scatters_in_the_order_of_the_group) {
  std::vector<float> a = {1, 2, 3, 4}, b = {10, 20, 30, 40}, part_a(2), part_b(2);
  std::unique_ptr<XLA_FFI_Future> first, second;
  auto here = frame(0);
  here->add_argument(XLA_FFI_DataType_F32, a.data(), {4});
  here->add_result(XLA_FFI_DataType_F32, part_a.data(), {2});
  ASSERT_EQ(here->call(handler("tersum_reduce_scatter"), first), nullptr);
  auto there = frame(2048);
  there->add_argument(XLA_FFI_DataType_F32, b.data(), {4});
  there->add_result(XLA_FFI_DataType_F32, part_b.data(), {2});
  ASSERT_EQ(there->call(handler("tersum_reduce_scatter"), second), nullptr);
  EXPECT_EQ(first->wait(), "");
  EXPECT_EQ(second->wait(), "");
  EXPECT_THAT(part_b, ElementsAre(11, 22));  // device 2048 is rank 0
  EXPECT_THAT(part_a, ElementsAre(33, 44));
}

TEST_F(HandlersTest, passes_errors_on_with_their_kind) {
  world_->fail(Status(StatusCode::kPeerLost, "rank 1 is gone"));
  float a = 1, b = 2;
  std::unique_ptr<XLA_FFI_Future> first, second;
  auto here = frame(0);
  here->add_argument(XLA_FFI_DataType_F32, &a, {1});
  here->add_result(XLA_FFI_DataType_F32, &a, {1});
  ASSERT_EQ(here->call(handler("tersum_all_reduce"), first), nullptr);
  auto there = frame(2048);
  there->add_argument(XLA_FFI_DataType_F32, &b, {1});
  there->add_result(XLA_FFI_DataType_F32, &b, {1});
  ASSERT_EQ(there->call(handler("tersum_all_reduce"), second), nullptr);
  EXPECT_THAT(first->wait(), HasSubstr("rank 1 is gone"));
  EXPECT_EQ(first->error->code, XLA_FFI_Error_Code_UNAVAILABLE);
  EXPECT_THAT(second->wait(),
              HasSubstr("tersum all_reduce on device 2048 (devices 2048,0; 1 values"));
  EXPECT_EQ(a, 1);
}

TEST_F(HandlersTest, refuses_types_it_cannot_sum) {
  std::vector<int8_t> values(4);
  std::unique_ptr<XLA_FFI_Future> future;
  auto it = frame(0);
  it->add_argument(XLA_FFI_DataType_S8, values.data(), {4});
  it->add_result(XLA_FFI_DataType_S8, values.data(), {4});
  ASSERT_EQ(it->call(handler("tersum_all_reduce"), future), nullptr);
  EXPECT_THAT(future->wait(), HasSubstr("tersum sums float32"));
  EXPECT_EQ(future->error->code, XLA_FFI_Error_Code_UNIMPLEMENTED);
}

TEST_F(HandlersTest, refuses_shapes_that_do_not_fit) {
  std::vector<float> values(5);
  std::unique_ptr<XLA_FFI_Future> future;
  auto it = frame(0);
  it->add_argument(XLA_FFI_DataType_F32, values.data(), {5});
  it->add_result(XLA_FFI_DataType_F32, values.data(), {2});
  ASSERT_EQ(it->call(handler("tersum_reduce_scatter"), future), nullptr);
  EXPECT_THAT(future->wait(), HasSubstr("has 5 elements and its result 2"));
}

TEST_F(HandlersTest, a_missing_attribute_is_an_error_at_once) {
  float a = 0;
  std::unique_ptr<XLA_FFI_Future> future;
  auto it = frame(0);
  it->add_argument(XLA_FFI_DataType_F32, &a, {1});
  it->add_result(XLA_FFI_DataType_F32, &a, {1});
  it->drop("codec");
  const auto error = it->call(handler("tersum_all_reduce"), future);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(future, nullptr);
}

TEST_F(HandlersTest, an_empty_array_is_a_sum_too) {
  std::unique_ptr<XLA_FFI_Future> first, second;
  auto here = frame(0);
  here->add_argument(XLA_FFI_DataType_F32, nullptr, {0, 3});
  here->add_result(XLA_FFI_DataType_F32, nullptr, {0, 3});
  ASSERT_EQ(here->call(handler("tersum_all_reduce"), first), nullptr);
  auto there = frame(2048);
  there->add_argument(XLA_FFI_DataType_F32, nullptr, {0, 3});
  there->add_result(XLA_FFI_DataType_F32, nullptr, {0, 3});
  ASSERT_EQ(there->call(handler("tersum_all_reduce"), second), nullptr);
  EXPECT_EQ(first->wait(), "");
  EXPECT_EQ(second->wait(), "");
}

}  // namespace
}  // namespace tersum::xla_ffi
