// What codec_bench --check asks of a kernel, as a share of memcpy's speed, on a CPU with AVX-512.
//
// Thread safety: pure functions.
#pragma once

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
  if (spec.modifiers.size() == 1) {
    const bool turns = spec.modifiers[0] == "hadamard" || spec.modifiers[0] == "flatten";
    return turns ? in(kRotated) : 0;
  }
  const bool is_listed = spec.base == "nf4" || spec.base == "int4" || spec.base == "int6" ||
                         spec.base.starts_with("mxfp8");
  return spec.modifiers.empty() && is_listed ? in(kPlain) : 0;
}

}  // namespace tersum
