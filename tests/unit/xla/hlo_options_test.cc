// What the options change: thresholds, locality, default and chosen codecs, and which are refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "hlo_test_module.h"

namespace tersum::hlo_test {
namespace {

using ::testing::HasSubstr;

HloReportRow first_row(const std::string& name, const HloPassOptions& options) {
  const auto output = run_checked(golden(kJaxFolder, name), options);
  EXPECT_FALSE(output.rows.empty());
  return output.rows.empty() ? HloReportRow() : output.rows.front();
}

void expect_left_alone(const HloReportRow& row, const std::string& reason) {
  EXPECT_EQ(row.outcome, HloOutcome::kLeftAlone);
  EXPECT_THAT(row.reason, HasSubstr(reason));
}

// psum_f32 sums f32[2,16] on each device: 128 bytes.
TEST(HloOptions, MinBytesCountsTheOperands) {
  auto options = all_options();
  options.min_bytes = 128;
  EXPECT_EQ(first_row("psum_f32", options).outcome, HloOutcome::kRewritten);
  options.min_bytes = 129;
  expect_left_alone(first_row("psum_f32", options), "Its 128 bytes are below min_bytes (129).");
  // Three operands of 128 bytes, combined into one operation.
  EXPECT_EQ(first_row("psum_tuple", options).outcome, HloOutcome::kRewritten);
  expect_left_alone(first_row("psum_choice_int4", options), "below min_bytes");
}

TEST(HloOptions, GroupsInsideTheProcessAreLeftToXla) {
  auto options = all_options();
  options.local_devices = {0, 1, 2, 3, 4, 5, 6, 7};
  expect_left_alone(first_row("psum_f32", options), "no wire to save");
  options.rewrite_local_groups = true;
  EXPECT_EQ(first_row("psum_f32", options).outcome, HloOutcome::kRewritten);
}

// Process 0 has the devices 0 and 1, process 1 has 2048 and 2049, on the mesh [[2048, 0], [2049,
// 1]]: the first psum is over columns, which lie within a process each, the second over rows.
TEST(HloOptions, EachMemberOfACrossingGroupDecidesAlike) {
  for (const int rank : {0, 1}) {
    const std::string name = "two_processes_psum_rank" + std::to_string(rank);
    auto options = all_options();
    options.local_devices =
        rank == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2048, 2049};
    const auto output = run_checked(golden(kJaxFolder, name), options);
    ASSERT_EQ(output.rows.size(), 2u);
    expect_left_alone(output.rows[0], "no wire to save");
    EXPECT_EQ(output.rows[1].outcome, HloOutcome::kRewritten);
    // The number is that of the operation, not of the rewritten ones.
    EXPECT_EQ(call_of(output.module, output.rows[1].instruction).attributes.at("operation"),
              "1 : i64");
  }
}

// One group within the process, the other not: the instruction is rewritten, for both.
TEST(HloOptions, OneCrossingGroupIsEnough) {
  auto options = all_options();
  options.local_devices = {0, 1, 2};
  EXPECT_EQ(first_row("matmul_square", options).outcome, HloOutcome::kRewritten);
  EXPECT_EQ(first_row("pmap_groups", options).outcome, HloOutcome::kRewritten);
}

// Two groups in a process of their own, two that cross: every process rewrites, also one whose own
// groups are all local, so that all of them run the same program.
TEST(HloOptions, AllProcessesDecideAlikeWhereTheyAreKnown) {
  auto options = all_options();
  options.processes = {{0, 1, 2}, {3}, {4, 5, 6, 7}};
  for (const auto& devices : options.processes) {
    options.local_devices = devices;
    EXPECT_EQ(first_row("pmap_groups", options).outcome, HloOutcome::kRewritten);
  }
  options.processes = {{0, 1, 2, 3, 4, 5, 6, 7}, {2048}};
  expect_left_alone(first_row("pmap_groups", options), "no wire to save");
  options.processes = {{2048}};
  expect_left_alone(first_row("pmap_groups", options), "belongs to no known process");
}

TEST(HloOptions, ModulesOfOtherProcessesAreNotOurs) {
  auto options = all_options();
  options.local_devices = {99};
  options.rewrite_local_groups = true;
  expect_left_alone(first_row("psum_f32", options), "None of its devices belongs to this process");
}

TEST(HloOptions, ChoicesGoBeforeTheDefault) {
  auto options = all_options();
  options.codec = "exact";
  EXPECT_EQ(first_row("psum_f32", options).codec, "exact");
  EXPECT_EQ(first_row("psum_choice_int4", options).codec, "int4/32");
  EXPECT_EQ(first_row("psum_choice_bf16", options).codec, "int4/128");
  EXPECT_EQ(first_row("matmul_choice", options).codec, "int4/128");
}

TEST(HloOptions, DefaultOffRewritesOnlyWhatAsksForIt) {
  auto options = all_options();
  options.codec = "off";
  expect_left_alone(first_row("psum_f32", options), "The default is \"off\"");
  EXPECT_EQ(first_row("psum_choice_int4", options).codec, "int4/32");
  EXPECT_EQ(first_row("psum_choice_exact", options).codec, "exact");
}

TEST(HloOptions, WrongOnesAreNamed) {
  const std::string module = golden(kJaxFolder, "psum_f32");
  const auto refused = [&module](auto change) {
    auto options = all_options();
    change(options);
    const auto result = run_hlo_pass(module, options);
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  EXPECT_THAT(refused([](auto& o) { o.codec = "int7"; }), HasSubstr("int7"));
  EXPECT_THAT(refused([](auto& o) { o.codec = "int8\" , x = \""; }), HasSubstr("no codec"));
  EXPECT_THAT(refused([](auto& o) { o.plan = "best"; }), HasSubstr("plan is 'best'"));
  EXPECT_THAT(refused([](auto& o) { o.timeout_ms = -1; }), HasSubstr("timeout_ms is -1"));
  EXPECT_THAT(refused([](auto& o) { o.min_bytes = -1; }), HasSubstr("min_bytes is -1"));
}

TEST(HloOptions, OutcomesHaveNames) {
  EXPECT_EQ(hlo_outcome_name(HloOutcome::kRewritten), "rewritten");
  EXPECT_EQ(hlo_outcome_name(HloOutcome::kLeftAlone), "left alone");
  EXPECT_EQ(hlo_outcome_name(HloOutcome::kError), "error");
}

}  // namespace
}  // namespace tersum::hlo_test
