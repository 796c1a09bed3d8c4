// Every committed module: what the pass does with each collective in it, and that it does nothing
// else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hlo_test_module.h"

namespace tersum::hlo_test {
namespace {

using ::testing::HasSubstr;

// One module. `outcomes` has a letter per collective in order: R rewritten, a left alone, E error;
// lower-case r: rewritten and proved to travel as bf16.
struct Expectation {
  std::string name;
  std::string outcomes;
  std::string reason;  // part of the first row's
};

char letter_of(const HloReportRow& row) {
  if (row.outcome == HloOutcome::kError) return 'E';
  if (row.outcome == HloOutcome::kLeftAlone) return 'a';
  return row.wire_bf16 ? 'r' : 'R';
}

void check(const std::string& folder, const Expectation& expected) {
  SCOPED_TRACE(folder + "/" + expected.name);
  auto options = all_options();
  options.codec = "exact";
  const HloPassOutput output = run_checked(golden(folder, expected.name), options);
  std::string outcomes;
  for (const HloReportRow& row : output.rows) outcomes += letter_of(row);
  EXPECT_EQ(outcomes, expected.outcomes);
  if (output.rows.empty()) return;
  EXPECT_THAT(output.rows.front().reason, HasSubstr(expected.reason));
}

void check_all(const std::string& folder, const std::vector<Expectation>& expectations) {
  std::vector<std::string> named;
  for (const Expectation& expected : expectations) {
    named.push_back(expected.name);
    check(folder, expected);
  }
  std::sort(named.begin(), named.end());
  EXPECT_EQ(named, golden_names(folder)) << "a module without an expectation, or the reverse";
}

TEST(HloGolden, ModulesOfJax) {
  const std::string precise = "an operand carries more than bf16 precision";
  const std::string lossless = "travels as bf16, which loses nothing";
  check_all(kJaxFolder,
            {{"all_gather", "a", "rewrites all-reduce and reduce-scatter"},
             {"donated", "R", "1 group of 4 devices"},
             {"matmul_bf16", "R", precise},
             {"matmul_choice", "R", "plain sum"},
             {"matmul_f32", "R", "1 group of 4 devices"},
             {"matmul_permuted", "R", "4 groups of 2 devices"},
             {"matmul_square", "R", "2 groups of 4 devices"},
             {"pmap", "R", "1 group of 4 devices"},
             {"pmap_groups", "R", "2 groups of 2 devices"},
             {"pmax", "a", "reduces with maximum"},
             {"pmin", "a", "reduces with minimum"},
             {"psum_16_apart", "RRRRRRRRRRRRRRRR", "plain sum"},
             {"psum_axes", "RRRR", "4 groups of 2 devices"},
             {"psum_axes_permuted", "RRRR", "4 groups of 2 devices"},
             {"psum_bf16", "r", lossless},
             {"psum_bf16_inside", "R", precise},
             {"psum_bf16_moved", "r", lossless},
             {"psum_bf16_read_in_f32", "r", lossless},  // jax rounds to bf16 first
             {"psum_choice_bad", "E", "asks for tersum=\"int7\", but: no codec 'int7'."},
             {"psum_choice_bf16", "R", "XLA promoted it from bf16."},
             {"psum_choice_combined", "E", "xla_disable_hlo_passes=cpu-all-reduce-combiner"},
             {"psum_choice_exact", "R", "plain sum"},
             {"psum_choice_int4", "R", "plain sum"},
             {"psum_choice_off", "a", "asks for tersum=\"off\""},
             {"psum_choice_swept", "R", "XLA combined 2 operations into it"},
             {"psum_cond", "RR", "plain sum"},
             {"psum_f16", "R", "plain sum"},
             {"psum_f32", "R", "plain sum"},
             {"psum_mixed", "R", precise},
             {"psum_s32", "a", "element type is s32"},
             {"psum_scalar", "R", "plain sum"},
             {"psum_scan", "R", "plain sum"},
             {"psum_scatter", "R", "plain sum"},
             {"psum_scatter_axes", "R", "1 group of 8 devices"},
             {"psum_scatter_bf16", "r", lossless},
             {"psum_scatter_second", "R", "plain sum"},
             {"psum_tuple", "R", "plain sum"},
             {"psum_tuple_bf16", "r", lossless},
             {"psum_while", "R", "plain sum"},
             {"two_processes_matmul_rank0", "R", "2 groups of 2 devices"},
             {"two_processes_matmul_rank1", "R", "2 groups of 2 devices"},
             {"two_processes_psum_rank0", "RR", "2 groups of 2 devices"},
             {"two_processes_psum_rank1", "RR", "2 groups of 2 devices"}});
}

std::vector<Expectation> bad_groups() {
  const std::string mesh = "mesh-axis replica groups contradict";
  const std::string iota = "iota replica groups contradict";
  const std::string once = "hold every participant exactly once";
  return {{"bad_assignment_absent", "a", "names no devices"},
          {"bad_assignment_short", "a", "names no devices"},
          {"bad_assignment_twice", "a", "names a device twice"},
          {"bad_groups_empty_one", "a", "same size"},
          {"bad_groups_incomplete", "a", once},
          {"bad_groups_negative", "a", once},
          {"bad_groups_out_of_range", "a", once},
          {"bad_groups_single", "a", "single device"},
          {"bad_groups_twice", "a", once},
          {"bad_groups_two_encodings", "a", "two encodings"},
          {"bad_groups_unequal", "a", "same size"},
          {"bad_groups_unknown_encoding", "a", "does not know"},
          {"bad_iota_huge", "a", iota},
          {"bad_iota_permutation", "a", iota},
          {"bad_iota_product", "a", iota},
          {"bad_mesh_axis", "a", mesh},
          {"bad_mesh_device_ids", "a", mesh},
          {"bad_mesh_huge", "a", mesh},
          {"bad_mesh_no_axes", "a", mesh},
          {"bad_mesh_overlap", "a", mesh},
          {"bad_mesh_sub_axis", "a", mesh}};
}

std::vector<Expectation> bad_sums() {
  const std::string plain = "not a plain add of two parameters";
  const std::string async = "made it asynchronous";
  return {{"bad_async_started", "a", async},
          {"bad_async_thread", "a", async},
          {"bad_async_wrapped", "a", async},
          {"bad_in_fusion", "a", "part of a fusion"},
          {"bad_layout_absent", "a", "layout"},
          {"bad_layout_constrained", "a", "constrains the layout"},
          {"bad_layout_differs", "a", "laid out differently"},
          {"bad_layout_tiled", "a", "layout"},
          {"bad_reducer_in_f64", "a", plain},
          {"bad_reducer_missing", "a", plain},
          {"bad_reducer_multiply", "a", "reduces with multiply"},
          {"bad_reducer_one_parameter", "a", plain},
          {"bad_reducer_with_more", "a", plain},
          {"bad_scatter_dimension", "a", "different shapes"},
          {"bad_scatter_disordered", "a", "order of its shards"},
          {"bad_scatter_minor", "a", "not the most major one"},
          {"bad_scatter_shards", "a", "shards are not all of the same size"},
          {"bad_shape_differs", "a", "different shapes"},
          {"bad_shape_dynamic", "a", "dynamic"},
          {"bad_shape_empty", "a", "no elements"},
          {"bad_shape_huge", "a", "malformed"},
          {"bad_shape_negative", "a", "malformed"},
          {"bad_type_f64", "a", "element type is f64"},
          {"bad_types_mixed", "a", "differ in element type"}};
}

// Group contents are checked in hlo_groups_test.cc.
std::vector<Expectation> good_modules() {
  return {{"bf16_native", "R", "plain sum"},
          {"groups_absent", "R", "1 group of 8 devices"},
          {"groups_iota", "R", "2 groups of 4 devices"},
          {"groups_iota_three", "R", "4 groups of 2 devices"},
          {"groups_iota_transposed", "R", "4 groups of 2 devices"},
          {"groups_lists", "R", "2 groups of 4 devices"},
          {"groups_lists_empty", "R", "1 group of 8 devices"},
          {"groups_mesh", "R", "4 groups of 2 devices"},
          {"groups_mesh_device_ids", "R", "4 groups of 2 devices"},
          {"groups_mesh_disordered", "R", "2 groups of 4 devices"},
          {"groups_mesh_iota", "R", "4 groups of 2 devices"},
          {"groups_mesh_minor", "R", "2 groups of 4 devices"},
          {"groups_mesh_sub_axis", "R", "4 groups of 2 devices"},
          {"groups_mesh_two_axes", "R", "2 groups of 4 devices"},
          {"groups_mesh_two_sub_axes", "R", "2 groups of 4 devices"},
          {"groups_old_lists", "R", "2 groups of 4 devices"},
          {"keep_control_predecessors", "R", "plain sum"},
          {"keep_unknown_fields", "R", "plain sum"},
          {"meaning_cross_partition", "R", "2 groups of 2 devices"},
          {"meaning_cross_partition_all", "R", "1 group of 4 devices"},
          {"meaning_cross_partition_empty", "R", "1 group of 4 devices"},
          {"meaning_flattened", "R", "2 groups of 2 devices"},
          {"meaning_flattened_empty", "R", "1 group of 4 devices"},
          {"meaning_replicas", "R", "2 groups of 2 devices"},
          {"meaning_replicas_empty", "R", "2 groups of 2 devices"},
          {"meaning_undefined", "a", "no channel"},
          {"promoted", "r", "loses nothing"},
          {"promoted_from_f16", "R", "more than bf16 precision"},
          {"promoted_fusions", "r", "loses nothing"},
          {"promoted_more_precise", "R", "more than bf16 precision"},
          {"promoted_moved", "r", "loses nothing"},
          {"promoted_read_in_f32", "R", "also read in f32"},
          {"promoted_result_leaves", "R", "also read in f32"},
          {"promoted_result_used_first", "R", "also read in f32"},
          {"scatter_below_ones", "R", "plain sum"},
          {"scatter_major", "R", "plain sum"},
          {"scatter_major_by_layout", "R", "plain sum"}};
}

TEST(HloGolden, HandmadeModules) {
  std::vector<Expectation> all = good_modules();
  for (const auto& bad : {bad_groups(), bad_sums()}) all.insert(all.end(), bad.begin(), bad.end());
  check_all(kHandmadeFolder, all);
}

TEST(HloGolden, RowSaysWhatTheOperationIs) {
  auto options = all_options();
  options.codec = "exact";
  const auto output = run_checked(golden(kJaxFolder, "psum_tuple_bf16"), options);
  ASSERT_EQ(output.rows.size(), 1u);
  const HloReportRow& row = output.rows.front();
  EXPECT_EQ(row.module, "jit__lambda");
  EXPECT_EQ(row.instruction, "all-reduce");
  EXPECT_EQ(row.opcode, "all-reduce");
  EXPECT_EQ(row.op_name, "jit(<lambda>)/shard_map/psum_invariant");
  EXPECT_EQ(row.element_type, "f32");
  EXPECT_EQ(row.elements, 2 * 16 + 16);
  EXPECT_EQ(row.bytes, 4 * (2 * 16 + 16));
  EXPECT_EQ(row.groups, "1 group of 4");
  EXPECT_EQ(row.codec, "exact");
  EXPECT_TRUE(row.promoted);
  EXPECT_TRUE(row.wire_bf16);
}

TEST(HloGolden, CallCarriesItsAttributes) {
  const std::string module = golden(kJaxFolder, "two_processes_psum_rank0");
  auto options = all_options();
  options.timeout_ms = 1234;
  options.plan = "two_step";
  options.codec = "int8";
  const auto output = run_checked(module, options);
  ASSERT_EQ(output.rows.size(), 2u);
  const Call first = call_of(output.module, output.rows[0].instruction);
  const Call second = call_of(output.module, output.rows[1].instruction);
  EXPECT_EQ(first.target, "tersum_all_reduce");
  EXPECT_EQ(first.attributes.size(), 9u);
  // Devices 0, 1 are process 0's, 2048, 2049 process 1's; the mesh is [[2048, 0], [2049, 1]].
  EXPECT_EQ(first.groups, (std::vector<int64_t>{2048, 2049, 0, 1}));
  EXPECT_EQ(second.groups, (std::vector<int64_t>{2048, 0, 2049, 1}));
  EXPECT_EQ(first.attributes.at("group_size"), "2 : i64");
  EXPECT_EQ(first.attributes.at("operation"), "0 : i64");
  EXPECT_EQ(second.attributes.at("operation"), "1 : i64");
  EXPECT_EQ(first.attributes.at("codec"), "\"int8/128\"");
  EXPECT_EQ(first.attributes.at("plan"), "\"two_step\"");
  EXPECT_EQ(first.attributes.at("timeout_ms"), "1234 : i64");
  EXPECT_EQ(first.attributes.at("wire_bf16"), "false");
  EXPECT_EQ(first.attributes.at("fingerprint"), second.attributes.at("fingerprint"));
}

// wire_bf16 overrides the codec, so it must not be set beside one that sends less.
TEST(HloGolden, OnlyTheExactCodecSendsPromotedSumsAsBf16) {
  const std::string module = golden(kJaxFolder, "psum_scatter_bf16");
  for (const std::string codec : {"exact", "int8/128"}) {
    auto options = all_options();
    options.codec = codec;
    const auto output = run_checked(module, options);
    const Call call = call_of(output.module, output.rows.at(0).instruction);
    EXPECT_EQ(call.target, "tersum_reduce_scatter");
    EXPECT_EQ(call.attributes.at("codec"), '"' + codec + '"');
    EXPECT_EQ(call.attributes.at("wire_bf16"), codec == "exact" ? "true" : "false");
    EXPECT_EQ(output.rows.at(0).wire_bf16, codec == "exact");
    EXPECT_TRUE(output.rows.at(0).promoted);
  }
}

// The two processes' modules differ (module counter, source files), their fingerprints do not; and
// no two programs here share one.
TEST(HloGolden, FingerprintIsOfTheProgramNotOfTheProcess) {
  const auto fingerprint = [](const std::string& name) {
    const auto output = run_checked(golden(kJaxFolder, name), all_options());
    return call_of(output.module, output.rows.at(0).instruction).attributes.at("fingerprint");
  };
  EXPECT_NE(golden(kJaxFolder, "two_processes_psum_rank0"),
            golden(kJaxFolder, "two_processes_psum_rank1"));
  EXPECT_EQ(fingerprint("two_processes_psum_rank0"), fingerprint("two_processes_psum_rank1"));
  EXPECT_EQ(fingerprint("two_processes_matmul_rank0"), fingerprint("two_processes_matmul_rank1"));
  const std::vector<std::string> programs = {"two_processes_psum_rank0",
                                             "two_processes_matmul_rank0",
                                             "psum_f32",
                                             "psum_f16",
                                             "psum_axes",
                                             "psum_axes_permuted",
                                             "matmul_f32",
                                             "pmap",
                                             "pmap_groups",
                                             "psum_scatter"};
  std::set<std::string> distinct;
  for (const std::string& name : programs) distinct.insert(fingerprint(name));
  EXPECT_EQ(distinct.size(), programs.size());
}

}  // namespace
}  // namespace tersum::hlo_test
