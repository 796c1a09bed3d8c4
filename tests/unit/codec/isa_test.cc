// The choice of the instruction set: it takes, it is refused by name, and finding codecs and
// running them allocates nothing.
#include "codec/force_isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "codec/codec.h"
#include "codec/kernels/block_kernels.h"
#include "codec/kernels/dense_kernels.h"
#include "codec/kernels/dispatch.h"

namespace {
std::atomic<size_t> g_allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  ++g_allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tersum {
namespace {

TEST(Isa, EveryAvailableOneCanBeForcedAndIsThenUsed) {
  const std::vector<std::string> names = available_isas();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), "scalar");
  std::vector<const BlockKernels*> int8_tables;
  std::vector<const BlockKernels*> int4_tables;
  std::vector<const DenseKernels*> float_tables;
  std::vector<const DenseKernels*> plain_tables;
  for (const std::string& name : names) {
    ASSERT_TRUE(force_isa(name).ok()) << name;
    EXPECT_EQ(active_isa(), name);
    // Different code, not just a different name.
    int8_tables.push_back(&int8_kernels_of(active_target()));
    int4_tables.push_back(&int4_kernels_of(active_target()));
    float_tables.push_back(&dense_float_kernels_of(active_target()));
    plain_tables.push_back(&dense_plain_kernels_of(active_target()));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(int8_tables[i], int8_tables[j]) << names[i] << " runs " << names[j];
      EXPECT_NE(int8_tables[i]->combine, int8_tables[j]->combine);
      EXPECT_NE(int4_tables[i]->combine, int4_tables[j]->combine);
      EXPECT_NE(float_tables[i]->combine, float_tables[j]->combine);
      EXPECT_NE(plain_tables[i]->combine, plain_tables[j]->combine);
    }
  }
  ASSERT_TRUE(force_isa("").ok());
  EXPECT_EQ(active_isa(), names.front());
}

TEST(Isa, AnUnknownOneIsRefusedAndNothingChanges) {
  ASSERT_TRUE(force_isa("scalar").ok());
  const Status status = force_isa("avx9000");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("avx9000"));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("scalar"));
  EXPECT_EQ(active_isa(), "scalar");
  ASSERT_TRUE(force_isa("").ok());
}

TEST(Isa, CodecsAllocateNothingAfterTheFirstCall) {
  const size_t count = 5000;
  std::vector<float> values(count, 1.5f);
  std::vector<std::byte> wire(count * 4);
  const std::vector<const std::byte*> wires(20, wire.data());
  for (const std::string& name : available_isas()) {
    ASSERT_TRUE(force_isa(name).ok());
    for (const char* spec : {"exact", "bf16", "int8/1024", "int4/32"}) {
      ASSERT_TRUE(find_codec(spec, DataType::kFloat32, ReduceOp::kSum).ok());
      const size_t before = g_allocations;
      const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
      codec.encode(values.data(), count, wire.data());
      codec.decode(wire.data(), count, values.data());
      codec.combine(wires, values.data(), 3, count, {}, nullptr, values.data());
      codec.combine({wires.data(), 1}, values.data(), 0, count, {}, wire.data(), values.data());
      EXPECT_EQ(g_allocations, before) << spec << " on " << name;
    }
  }
  ASSERT_TRUE(force_isa("").ok());
}

}  // namespace
}  // namespace tersum
