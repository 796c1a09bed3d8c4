// The contents of the groups, for each encoding and each meaning.

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "hlo_test_module.h"
#include "xla/hlo_groups.h"

namespace tersum::hlo_test {
namespace {

struct Case {
  std::string module;
  std::vector<std::vector<int64_t>> groups;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.module; }

class HloGroupsOf : public ::testing::TestWithParam<Case> {};

TEST_P(HloGroupsOf, Module) {
  const auto output = run_checked(golden(kHandmadeFolder, GetParam().module), all_options());
  ASSERT_EQ(output.rows.size(), 1u);
  const Call call = call_of(output.module, output.rows.front().instruction);
  std::vector<int64_t> expected;
  for (const auto& group : GetParam().groups) {
    expected.insert(expected.end(), group.begin(), group.end());
  }
  EXPECT_EQ(call.groups, expected);
  EXPECT_EQ(call.attributes.at("group_size"),
            std::to_string(GetParam().groups.front().size()) + " : i64");
}

const std::vector<std::vector<int64_t>> kAll = {{0, 1, 2, 3, 4, 5, 6, 7}};
const std::vector<std::vector<int64_t>> kHalves = {{0, 1, 2, 3}, {4, 5, 6, 7}};
const std::vector<std::vector<int64_t>> kAcross = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
const std::vector<std::vector<int64_t>> kOuterAndInner = {{0, 1, 4, 5}, {2, 3, 6, 7}};

INSTANTIATE_TEST_SUITE_P(
    Encodings, HloGroupsOf,
    ::testing::Values(Case{"groups_absent", kAll}, Case{"groups_lists_empty", kAll},
                      Case{"groups_old_lists", kHalves}, Case{"groups_lists", kHalves},
                      Case{"groups_iota", kHalves}, Case{"groups_iota_transposed", kAcross},
                      // iota(2, 2, 2) with the innermost axis moved to the front.
                      Case{"groups_iota_three", {{0, 2}, {4, 6}, {1, 3}, {5, 7}}},
                      Case{"groups_mesh", kAcross}, Case{"groups_mesh_minor", kHalves},
                      Case{"groups_mesh_two_axes", kOuterAndInner},
                      // [[3, 1, 4, 0], [5, 2, 7, 6]], along the first axis.
                      Case{"groups_mesh_device_ids", {{3, 5}, {1, 2}, {4, 7}, {0, 6}}},
                      // [[0, 4], [1, 5], [2, 6], [3, 7]], along the second axis.
                      Case{"groups_mesh_iota", kAcross},
                      // 8 = 2 x (2) x 2, along the middle.
                      Case{"groups_mesh_sub_axis", {{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
                      // 8 = (2) x 2 x (2).
                      Case{"groups_mesh_two_sub_axes", kOuterAndInner},
                      Case{"groups_mesh_disordered", kOuterAndInner}));

// Replica 0 has the devices 20 and 31 in its two partitions, replica 1 has 10 and 41.
INSTANTIATE_TEST_SUITE_P(Meanings, HloGroupsOf,
                         ::testing::Values(Case{"meaning_replicas", {{20, 10}, {31, 41}}},
                                           Case{"meaning_replicas_empty", {{20, 10}, {31, 41}}},
                                           Case{"meaning_cross_partition", {{10, 41}, {20, 31}}},
                                           Case{"meaning_cross_partition_all", {{10, 41, 20, 31}}},
                                           Case{"meaning_cross_partition_empty",
                                                {{20, 31, 10, 41}}},
                                           Case{"meaning_flattened", {{20, 41}, {10, 31}}},
                                           Case{"meaning_flattened_empty", {{20, 31, 10, 41}}}));

// What jax's own modules say, against the meshes in make_modules.py.
TEST(HloGroupsOfJax, Meshes) {
  const auto groups = [](const std::string& module, size_t row) {
    const auto output = run_checked(golden(kJaxFolder, module), all_options());
    return call_of(output.module, output.rows.at(row).instruction).groups;
  };
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(groups("psum_axes", 0), (Ids{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(groups("psum_axes", 1), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  // The mesh [[2, 7, 0, 5], [1, 6, 3, 4]].
  EXPECT_EQ(groups("psum_axes_permuted", 0), (Ids{2, 1, 7, 6, 0, 3, 5, 4}));
  EXPECT_EQ(groups("psum_axes_permuted", 1), (Ids{2, 7, 0, 5, 1, 6, 3, 4}));
  EXPECT_EQ(groups("matmul_permuted", 0), (Ids{2, 1, 7, 6, 0, 3, 5, 4}));
  EXPECT_EQ(groups("matmul_square", 0), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(groups("psum_scatter_axes", 0), (Ids{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(groups("pmap_groups", 0), (Ids{0, 3, 1, 2}));
}

HloDeviceAssignment devices(int64_t count) {
  HloDeviceAssignment out;
  out.replica_count = 1;
  out.computation_count = count;
  out.devices.resize(static_cast<size_t>(count));
  std::iota(out.devices.begin(), out.devices.end(), 0);
  return out;
}

// A mesh of all axes and an iota list that say the same thing give the same groups.
TEST(HloGroupsResolve, MeshAndIotaAgree) {
  const std::vector<int64_t> sizes = {3, 4, 2, 5};
  for (unsigned chosen = 1; chosen < 16; ++chosen) {
    HloCollective mesh;
    HloCollective iota;
    mesh.channel_id = iota.channel_id = 1;
    mesh.use_global_device_ids = iota.use_global_device_ids = true;
    mesh.groups.has_mesh = iota.groups.has_iota = true;
    mesh.groups.mesh_axis_sizes = iota.groups.iota.reshape_dims = sizes;
    int64_t group_size = 1;
    for (const bool grouped : {false, true}) {
      for (int64_t axis = 0; axis < 4; ++axis) {
        if (((chosen >> axis) & 1) != static_cast<unsigned>(grouped)) continue;
        iota.groups.iota.transpose_perm.push_back(axis);
        if (!grouped) continue;
        mesh.groups.mesh_axes.push_back({.mesh_axis = axis});
        group_size *= sizes[static_cast<size_t>(axis)];
      }
    }
    iota.groups.iota_group_size = group_size;
    iota.groups.iota_group_count = 120 / group_size;
    const auto from_mesh = resolve_hlo_groups(mesh, devices(120));
    const auto from_iota = resolve_hlo_groups(iota, devices(120));
    ASSERT_TRUE(from_mesh.ok()) << from_mesh.status().to_string();
    ASSERT_TRUE(from_iota.ok()) << from_iota.status().to_string();
    EXPECT_EQ(from_mesh.value().devices, from_iota.value().devices);
    EXPECT_EQ(from_mesh.value().group_size, group_size);
    EXPECT_TRUE(from_mesh.value().order_is_certain);
  }
}

TEST(HloGroupsResolve, HostileSizesCostNothing) {
  HloCollective collective;
  collective.channel_id = 1;
  collective.use_global_device_ids = true;
  collective.groups.has_mesh = true;
  collective.groups.mesh_axis_sizes.assign(100'000, 1);
  collective.groups.mesh_axes.assign(100'000, {});
  EXPECT_FALSE(resolve_hlo_groups(collective, devices(8)).ok());
  collective.groups.mesh_axis_sizes = {INT64_MAX, INT64_MAX};
  collective.groups.mesh_axes = {{.mesh_axis = INT64_MIN}};
  EXPECT_FALSE(resolve_hlo_groups(collective, devices(8)).ok());
  collective.groups.mesh_axis_sizes = {8};
  collective.groups.mesh_axes = {
      {.mesh_axis = 0, .is_sub_axis = true, .pre_size = INT64_MAX, .size = INT64_MAX}};
  EXPECT_FALSE(resolve_hlo_groups(collective, devices(8)).ok());
}

}  // namespace
}  // namespace tersum::hlo_test
