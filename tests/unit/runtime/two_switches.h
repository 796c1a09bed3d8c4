// Three and five hosts behind two switches with one link between them, all at 250 Mbit/s. A ring
// crosses that link with 1.75 times the array each way, two_step with 3.75 times.
#pragma once

namespace tersum {

inline constexpr const char* kTwoSwitches = R"({
  "rate": "250mbit",
  "latency_us": 0,
  "hosts": ["a", "b", "c", "d", "e", "f", "g", "h"],
  "switches": ["left", "right"],
  "links": [
    {"between": ["a", "left"]},
    {"between": ["b", "left"]},
    {"between": ["c", "left"]},
    {"between": ["d", "right"]},
    {"between": ["e", "right"]},
    {"between": ["f", "right"]},
    {"between": ["g", "right"]},
    {"between": ["h", "right"]},
    {"between": ["left", "right"]}
  ]
})";

}  // namespace tersum
