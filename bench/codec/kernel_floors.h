// What codec_bench --check asks of a kernel, as a share of memcpy's speed, on a CPU with AVX-512.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "codec/codec_spec.h"

namespace tersum {

struct KernelFloor {
  std::string_view kernel;
  double ratio;
};

// 0: none. `spec`: as a codec states it.
inline double kernel_floor(const CodecSpec& spec, std::string_view kernel) {
  constexpr std::array kInt8 = {KernelFloor{"encode", 0.70}, KernelFloor{"decode_add", 0.95},
                                KernelFloor{"hop", 0.45}, KernelFloor{"combine_3", 0.19}};
  constexpr std::array kRotated = {KernelFloor{"encode", 0.16}, KernelFloor{"decode_add", 0.25}};
  constexpr std::array kPlain = {KernelFloor{"encode", 0.30}};
  const auto in = [&](const auto& floors) {
    for (const KernelFloor& floor : floors) {
      if (floor.kernel == kernel) return floor.ratio;
    }
    return 0.0;
  };
  const std::string text = spec.to_string();
  if (text == "int8/128") return in(kInt8);
  const auto turns = [](const std::string& modifier) {
    return modifier == "hadamard" || modifier == "flatten";
  };
  // Beside a rotation these leave a slice's layout and its one coding as they are. Those that sort
  // out values or code blocks more than once have no floor, nor has shiftadd's sum of integers.
  const auto is_light = [](const std::string& modifier) {
    return modifier == "sr" || modifier == "floor" || modifier == "hops";
  };
  if (std::any_of(spec.modifiers.begin(), spec.modifiers.end(), turns)) {
    const bool has_floor =
        std::all_of(spec.modifiers.begin(), spec.modifiers.end(),
                    [&](const std::string& each) { return turns(each) || is_light(each); });
    return has_floor ? in(kRotated) : 0;
  }
  const bool is_listed = spec.base == "nf4" || spec.base == "int4" || spec.base == "int6" ||
                         spec.base.starts_with("mxfp8");
  return spec.modifiers.empty() && is_listed ? in(kPlain) : 0;
}

}  // namespace tersum
