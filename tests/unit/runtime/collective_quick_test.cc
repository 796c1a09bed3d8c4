// The suite of collectives in small, for the sanitizers: two group sizes, three shapes, lengths
// that divide by nothing, every transport. collective_suite_test has the whole of it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collective_fixture.h"

namespace tersum::testing {
namespace {

constexpr Shape kShapes[] = {
    {DataType::kFloat32, ReduceOp::kSum, "exact"},
    {DataType::kFloat32, ReduceOp::kSum, "int8"},
    {DataType::kBFloat16, ReduceOp::kAverage, "int4/32"},
};
// The last has several slices per part even of three ranks, under int4 too.
constexpr size_t kCounts[] = {0, 1, 1009, 40'009};

class CollectiveQuick : public CollectiveFixture {};

TEST_P(CollectiveQuick, AllReduce) {
  for (const Shape& shape : kShapes) {
    for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kRing, PlanKind::kOneShot}) {
      for (const size_t count : kCounts) {
        check_all_reduce(shape, plan, count, (count + static_cast<size_t>(plan)) % 2 == 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CollectiveQuick, ReduceScatter) {
  for (const Shape& shape : kShapes) {
    for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kRing}) {
      for (const size_t count : kCounts) {
        check_reduce_scatter(shape, plan, count);
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Points, CollectiveQuick,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values(ClusterKind::kLocal,
                                                              ClusterKind::kTcp, ClusterKind::kShm,
                                                              ClusterKind::kSim)),
                         point_name);

}  // namespace
}  // namespace tersum::testing
