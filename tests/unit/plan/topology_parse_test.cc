// Topology files: what is read, what is refused and at which line, and the way back to text.
#include <gtest/gtest.h>

#include <string>

#include "plan/topology.h"

namespace tersum::testing {
namespace {

constexpr std::string_view kTwoRacks = R"({
  "name": "two racks",
  "hosts": [
    {"name": "a", "ranks": [0, 1]},
    {"name": "b", "ranks": [3, 2]},
    "c"
  ],
  "switches": ["left", "right"],
  "rate": "10gbit",
  "links": [
    {"between": ["a", "left"]},
    {"between": ["b", "left"], "latency_us": 5},
    {"between": ["left", "right"], "rate": "2.5gbit", "latency_us": 20},
    {"between": ["right", "c"]}
  ]
})";

std::shared_ptr<const Topology> must_parse(std::string_view text) {
  auto parsed = parse_topology(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.value();
}

void expect_refused(std::string_view text, std::string_view message) {
  const auto parsed = parse_topology(text);
  ASSERT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(parsed.status().message().find(message), std::string_view::npos)
      << parsed.status().message() << "\nexpected: " << message;
}

// kTwoRacks with one text replaced.
std::string altered(std::string_view old_text, std::string_view new_text) {
  std::string text(kTwoRacks);
  const size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return text.replace(at, old_text.size(), new_text);
}

TEST(ParseTopology, ReadsHostsSwitchesAndLinks) {
  const auto topology = must_parse(kTwoRacks);
  EXPECT_EQ(topology->name, "two racks");
  EXPECT_EQ(topology->hosts, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(topology->switches, (std::vector<std::string>{"left", "right"}));
  EXPECT_EQ(topology->host_of, (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(topology->ranks_of[1], (std::vector<int>{2, 3}));
  EXPECT_EQ(topology->links.size(), 8U);
  EXPECT_TRUE(topology->all_adjacent);
  EXPECT_DOUBLE_EQ(topology->path_speed(0, 4).bytes_per_s, 2.5e9 / 8);
  EXPECT_DOUBLE_EQ(topology->path_speed(1, 2).bytes_per_s, 10e9 / 8);
  EXPECT_NEAR(topology->path_speed(2, 4).latency_s, 25e-6, 1e-12);
  EXPECT_EQ(topology->path(0, 2).size(), 3U);
}

TEST(ParseTopology, AHostBetweenTwoOthersIsNoSwitch) {
  const auto line = must_parse(R"({"hosts": ["a", "b", "c"], "rate": "1gbit",
      "links": [{"between": ["a", "b"]}, {"between": ["c", "b"]}]})");
  EXPECT_FALSE(line->adjacent(0, 2));
  EXPECT_EQ(line->next_hop(0, 2), 1);
}

TEST(ParseTopology, BucketsAreTheLinksOwnOrOfAll) {
  EXPECT_EQ(must_parse(kTwoRacks)->links[0].burst_bytes, 0);
  const auto one = must_parse(altered("\"latency_us\": 5", "\"burst_bytes\": 73728"));
  EXPECT_EQ(one->path_speed(2, 4).burst_bytes, 0);  // the other links of the path have none
  const auto all =
      must_parse(altered("\"rate\": \"10gbit\",", "\"rate\": \"10gbit\", \"burst_bytes\": 9000,"));
  EXPECT_EQ(all->path_speed(2, 4).burst_bytes, 9000);
  EXPECT_EQ(all->path_speed(0, 1).burst_bytes, 0);  // within a host
}

TEST(ParseTopology, OneHostNeedsNoLinks) {
  const auto alone = must_parse(R"({"hosts": [{"name": "a", "ranks": [0, 1, 2]}]})");
  EXPECT_EQ(alone->ranks(), 3);
  EXPECT_TRUE(alone->adjacent(0, 2));
  EXPECT_EQ(alone->next_hop(2, 1), 1);
}

TEST(ParseTopology, BackAndForthIsTheSame) {
  const auto expect_same = [](const Topology& topology) {
    const auto again = must_parse(describe_topology(topology));
    EXPECT_EQ(again->name, topology.name);
    EXPECT_EQ(again->shape, topology.shape);
    EXPECT_EQ(again->dims, topology.dims);
    EXPECT_EQ(again->hosts, topology.hosts);
    EXPECT_EQ(again->switches, topology.switches);
    EXPECT_EQ(again->host_of, topology.host_of);
    EXPECT_EQ(again->links, topology.links);
  };
  expect_same(*must_parse(kTwoRacks));
  expect_same(*must_parse(altered("\"latency_us\": 5", "\"burst_bytes\": 73728.5")));
  expect_same(*must_parse(R"({"name": "\"\\\u0001\n", "hosts": ["x"]})"));
  for (const char* name : {"pair", "ring8", "mesh4", "star8", "torus2x4", "torus2x2x2"}) {
    expect_same(*make_topology(name, 123456789.123, 17.25e-6).value());
  }
}

TEST(ParseTopology, AnUnknownHostNamesItsLine) {
  expect_refused(altered("[\"right\", \"c\"]", "[\"right\", \"d\"]"),
                 "line 14: no host or switch is named \"d\"");
}

TEST(ParseTopology, WrongHostsAndRanks) {
  expect_refused(altered("\"c\"\n", "\"a\"\n"), "line 6: \"a\" is listed twice");
  expect_refused(altered("[\"left\", \"right\"],", "[\"left\", \"b\"],"),
                 "line 8: \"b\" is listed twice");
  expect_refused(altered("[3, 2]", "[3, 1]"), "line 5: rank 1 is on host \"a\" already");
  expect_refused(altered("[3, 2]", "[5, 2]"), "line 5: rank 5 of 5 ranks; number them 0..4");
  expect_refused(altered("[3, 2]", "[]"), "line 5: host \"b\" has no ranks");
  expect_refused(altered("[3, 2]", "[3, 2.5]"), "line 5: a rank must be a whole number");
  expect_refused(altered("[3, 2]", "[3, -2]"), "line 5: a rank must be 0..");
  expect_refused(altered("[3, 2]", "[3, 1e300]"), "line 5: a rank must be 0..");
  expect_refused(altered("[3, 2]", "\"2, 3\""), "line 5: \"ranks\" must be a list");
  expect_refused(altered(", \"ranks\": [3, 2]", ""), "line 5: host \"b\" has no \"ranks\"");
  expect_refused(altered("\"c\"\n", "\"\"\n"), "line 6: a host or switch needs a name");
  expect_refused(altered("\"c\"\n", "7\n"), "line 6: a host that is not just a name");
  expect_refused(R"({"hosts": []})", "line 1: \"hosts\" is empty");
  expect_refused("{\n\n}", "line 1: \"hosts\" is missing");
  expect_refused(R"({"hosts": ["a", "b"]})", "\"links\" is missing");
}

TEST(ParseTopology, WrongLinks) {
  expect_refused(altered("[\"a\", \"left\"]", "[\"left\", \"left\"]"),
                 "line 11: a link joins two different nodes");
  expect_refused(altered("[\"b\", \"left\"]", "[\"left\", \"a\"]"),
                 "line 12: \"left\" and \"a\" are linked twice");
  expect_refused(altered("[\"a\", \"left\"]", "[\"a\"]"), "line 11: a link needs \"between\"");
  expect_refused(altered("[\"a\", \"left\"]", "[\"a\", 7]"), "line 11: a link's end must be");
  expect_refused(altered("\"2.5gbit\"", "\"0gbit\""),
                 "line 13: the rate \"0gbit\" must be positive");
  expect_refused(altered("\"2.5gbit\"", "\"-1gbit\""), "line 13");
  expect_refused(altered("\"2.5gbit\"", "\"fast\""), "line 13: \"fast\" is no rate");
  expect_refused(altered("\"2.5gbit\"", "1000"), "line 13: \"rate\" must be a string");
  expect_refused(altered("  \"rate\": \"10gbit\",\n", ""), "line 10: the link has no \"rate\"");
  expect_refused(altered("\"2.5gbit\"", "\"1e-300bit\""),
                 "line 13: the rate \"1e-300bit\" must be positive: between 1 bit and");
  expect_refused(altered("\"latency_us\": 5", "\"latency_us\": -5"), "line 12: a latency must be");
  expect_refused(altered("\"latency_us\": 5", "\"burst_bytes\": -1"),
                 "line 12: a burst must be between 0 and 10^12, in bytes");
  expect_refused(altered("\"latency_us\": 5", "\"burst_bytes\": \"72kb\""),
                 "line 12: \"burst_bytes\" must be a number");
  expect_refused(altered("\"latency_us\": 5", "\"latency\": 5"),
                 "line 12: a link has no member \"latency\"; it may have \"between\"");
  expect_refused(altered("\"name\": \"two racks\"", "\"nam\": 3"), "line 2: a topology has no");
  expect_refused(altered("\"two racks\"", "3"), "line 2: \"name\" must be a string");
}

TEST(ParseTopology, WhatCannotBeReachedNamesItsLine) {
  const std::string_view islands = R"({
    "hosts": ["a", "b",
              "c", "d"],
    "rate": "1gbit",
    "links": [{"between": ["a", "b"]}, {"between": ["c", "d"]}]
  })";
  expect_refused(altered("    {\"between\": [\"a\", \"left\"]},\n", ""),
                 "line 5: b cannot be reached from a");
  expect_refused(islands, "line 3: c cannot be reached from a");
  expect_refused(altered("\"left\", \"right\"],", "\"left\", \"right\",\n\"idle\"],"),
                 "line 9: idle cannot be reached from a");
}

// Four hosts on a line.
std::string line_of_four(std::string_view shape, std::string_view more_links) {
  return "{\"hosts\": [\"a\", \"b\", \"c\", \"d\"],\n\"rate\": \"1gbit\",\n\"shape\": \"" +
         std::string(shape) + "\",\n\"links\": [{\"between\": [\"a\", \"b\"]},\n" +
         "{\"between\": [\"b\", \"c\"]}, {\"between\": [\"c\", \"d\"]}" + std::string(more_links) +
         "]}";
}

TEST(ParseTopology, AClaimedShapeMustBeThere) {
  constexpr std::string_view kClose = ", {\"between\": [\"d\", \"a\"]}";
  EXPECT_EQ(must_parse(line_of_four("ring", kClose))->shape, "ring");
  EXPECT_EQ(must_parse(line_of_four("ring4", kClose))->ranks(), 4);
  expect_refused(line_of_four("ring", ""),
                 "line 3: shape ring needs a link between a and d; there is none");
  expect_refused(line_of_four("torus2x2", kClose),
                 "line 3: shape torus2x2 needs a link between a and c");
  expect_refused(line_of_four("ring5", kClose), "line 3: shape ring5 does not have 4 hosts");
  expect_refused(line_of_four("mesh", kClose), "line 3: shape mesh needs a link between a and c");
  expect_refused(line_of_four("star", kClose), "line 3: a star has one switch, not 0");
  expect_refused(line_of_four("torus", kClose), "line 3: shape torus does not have 4 hosts");
  expect_refused(line_of_four("blob", kClose), "line 3: no topology is named \"blob\"");
  expect_refused(line_of_four("ring", std::string(kClose) + ", {\"between\": [\"a\", \"c\"]}"),
                 "line 3: shape ring has 4 links; there are 5");
}

TEST(ParseTopology, ATorusWantsItsRanksInOrder) {
  const std::string_view text = R"({"shape": "torus2x2", "rate": "1gbit",
    "hosts": [{"name": "a", "ranks": [0]}, {"name": "b", "ranks": [2]},
              {"name": "c", "ranks": [1]}, {"name": "d", "ranks": [3]}],
    "links": [{"between": ["a", "b"]}, {"between": ["c", "d"]},
              {"between": ["a", "c"]}, {"between": ["b", "d"]}]})";
  expect_refused(text, "line 1: shape torus2x2 wants one rank per host");
}

TEST(ParseTopology, WhatIsNoJsonNamesTheLine) {
  expect_refused("", "line 1: the text ends before it is complete");
  expect_refused("{\n\"hosts\": [\"a\",\n}", "line 3: this is not JSON");
  expect_refused("{\n\"hosts\": [1,\n2,\n", "line 3: the text ends before");
  expect_refused("{\"hosts\": [\"a\"]}\n\n]", "line 3: this is not JSON");
  expect_refused("{\"hosts\": [\"a\"],\n\"hosts\": [\"a\"]}", "line 2: \"hosts\" occurs twice");
  expect_refused("[\n]", "line 1: a topology must be an object, not a list");
  expect_refused("{\"hosts\":\n [[[[[[[[[[[[]]]]]]]]]]]]}", "line 2: this is nested too deeply");
  expect_refused("{\"hosts\": [\"a\"],\n\"name\": \"\x80\"}", "line 2");
  expect_refused(std::string_view("{\"hosts\": [\"a\"]\0}", 18), "line 1");
  expect_refused("{\"rate\": 1e999}", "line 1");
}

}  // namespace
}  // namespace tersum::testing
