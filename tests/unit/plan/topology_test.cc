// Topologies by name: their links, who is adjacent to whom, and the way of relayed messages.
#include "plan/topology.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tersum::testing {
namespace {

std::shared_ptr<const Topology> must_make(std::string_view name, double rate = 1e9,
                                          double latency = 1e-5) {
  Result<std::shared_ptr<const Topology>> made = make_topology(name, rate, latency);
  EXPECT_TRUE(made.ok()) << name << ": " << made.status().to_string();
  return made.value();
}

TEST(Topology, ShapesHaveTheLinksOfTheirName) {
  struct Case {
    const char* name;
    int ranks;
    size_t wires;
    bool all_adjacent;
  };
  for (const Case& c :
       {Case{"pair", 2, 1, true}, Case{"ring2", 2, 1, true}, Case{"ring3", 3, 3, true},
        Case{"ring8", 8, 8, false}, Case{"mesh4", 4, 6, true}, Case{"star8", 8, 8, true},
        Case{"torus2x2", 4, 4, false}, Case{"torus2x4", 8, 12, false},
        Case{"torus4x4", 16, 32, false}, Case{"torus2x2x2", 8, 12, false},
        Case{"torus3x3x3", 27, 81, false}, Case{"torus8x8x8", 512, 1536, false}}) {
    const auto topology = must_make(c.name);
    EXPECT_EQ(topology->ranks(), c.ranks) << c.name;
    EXPECT_EQ(topology->links.size(), 2 * c.wires) << c.name;
    EXPECT_EQ(topology->all_adjacent, c.all_adjacent) << c.name;
    EXPECT_EQ(topology->name, c.name);
  }
}

TEST(Topology, ATorusNodeReachesItsNeighboursAlone) {
  const auto topology = must_make("torus2x4");
  EXPECT_EQ(topology->dims, (std::vector<int>{2, 4}));
  EXPECT_EQ(topology->adjacent_hosts[0], (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(topology->adjacent_hosts[6], (std::vector<int>{2, 5, 7}));
  EXPECT_TRUE(topology->adjacent(6, 2));
  EXPECT_FALSE(topology->adjacent(6, 1));
  EXPECT_TRUE(must_make("ring8")->dims.empty());
}

TEST(Topology, PathsAddLatenciesAndTakeTheSlowestLink) {
  const auto star = must_make("star4", 1e9, 1e-5);
  EXPECT_EQ(star->path(0, 3).size(), 2U);
  EXPECT_DOUBLE_EQ(star->path_speed(0, 3).latency_s, 2e-5);
  EXPECT_DOUBLE_EQ(star->path_speed(0, 3).bytes_per_s, 1e9);
  EXPECT_TRUE(std::isinf(star->path_speed(2, 2).bytes_per_s));
  EXPECT_EQ(star->path_speed(2, 2).latency_s, 0);
  const auto ring = must_make("ring5");
  ASSERT_EQ(ring->path(4, 0).size(), 1U);
  EXPECT_EQ(ring->links[ring->path(4, 0)[0]].from, 4);
}

// Every relayed message arrives, in as many hops as the hosts are apart.
TEST(Topology, RelayedMessagesTakeAShortestWay) {
  for (const char* name :
       {"pair", "ring7", "ring8", "mesh5", "star6", "torus2x4", "torus3x5", "torus2x2x3"}) {
    const auto topology = must_make(name);
    for (int from = 0; from < topology->ranks(); ++from) {
      const std::vector<int> distances = topology->host_distances(from);
      for (int to = 0; to < topology->ranks(); ++to) {
        int hops = 0;
        for (int at = from; at != to; ++hops) {
          const int next = topology->next_hop(at, to);
          ASSERT_TRUE(topology->adjacent(at, next)) << name;
          ASSERT_LT(hops, topology->ranks()) << name;
          at = next;
        }
        EXPECT_EQ(hops, distances[static_cast<size_t>(to)]) << name << " " << from << " " << to;
      }
    }
  }
}

TEST(Topology, StrangeNamesAreRefused) {
  for (const char* name : {"",
                           "ring",
                           "ring1",
                           "ring0",
                           "ring-3",
                           "ring8x2",
                           "mesh",
                           "star1",
                           "pair3",
                           "torus4",
                           "torus1x4",
                           "torus2x",
                           "torus2x2x2x2",
                           "torusx2",
                           "ring8 ",
                           "Ring8",
                           "ring99999",
                           "ring4096000000000",
                           "mesh4000",
                           "torus4096x4096",
                           "line4"}) {
    const auto made = make_topology(name);
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(made.status().message().find("torusAxB"), std::string_view::npos) << name;
  }
}

TEST(Topology, RatesArePositiveAndLatenciesNotNegative) {
  for (const double rate : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_FALSE(make_topology("pair", rate, 0).ok()) << rate;
  }
  EXPECT_TRUE(make_topology("pair", 1, 0).ok());
  EXPECT_FALSE(make_topology("pair", 1, -1e-9).ok());
  EXPECT_FALSE(make_topology("pair", 1, std::nan("")).ok());
}

TEST(Topology, TheLargestAreMade) {
  EXPECT_EQ(must_make("ring4096")->ranks(), 4096);
  EXPECT_EQ(must_make("star1024")->adjacent_hosts[5].size(), 1023U);
  EXPECT_EQ(must_make("torus16x16x16")->ranks(), 4096);
}

TEST(Rate, IsWrittenAsTcWritesIt) {
  const auto bits = [](const char* text) {
    const Result<double> rate = parse_rate(text);
    return rate.ok() ? rate.value() * 8 : -1;
  };
  EXPECT_EQ(bits("1gbit"), 1e9);
  EXPECT_EQ(bits("250mbit"), 250e6);
  EXPECT_EQ(bits("2.5gbit"), 2.5e9);
  EXPECT_EQ(bits("800kbit"), 8e5);
  EXPECT_EQ(bits("1000"), 1000);
  EXPECT_EQ(bits("7bit"), 7);
  for (const char* text :
       {"", "gbit", "1gb", "1 gbit", "-1gbit", "0", "0gbit", "nan", "inf", "1e999gbit", "1gbit ",
        "0.5bit", "1e-300bit", "1000001tbit", "1e300tbit"}) {
    EXPECT_FALSE(parse_rate(text).ok()) << text;
  }
}

}  // namespace
}  // namespace tersum::testing
