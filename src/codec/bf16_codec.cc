#include "codec/bf16_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codec/dense_codec.h"

namespace tersum {
namespace {

class Bf16Codec final : public DenseCodec {
 public:
  explicit Bf16Codec(DataType type)
      : DenseCodec(CodecSpec{"bf16", 0, {}}, DenseFormat{type, DenseWire::kBFloat16}) {}

  [[nodiscard]] bool lossless() const override { return false; }

  // Half a step of 8 significant bits is 2^-8 of the power of two below, so at most 2^-8 |x|; among
  // the denormals half a step is 2^-134. Saturation stays within the first term. Back in float16
  // (11 bits) an 8-bit number is exact, except among float16's denormals: half a step of 2^-24.
  [[nodiscard]] double block_error_bound(double absmax) const override {
    if (!(absmax < std::numeric_limits<double>::infinity())) {
      return std::numeric_limits<double>::infinity();
    }
    if (absmax == 0) return 0;
    const double step = std::max(std::ldexp(absmax, -8), std::ldexp(1.0, -134));
    return step + (value_type() == DataType::kFloat16 ? std::ldexp(1.0, -25) : 0.0);
  }
};

}  // namespace

std::unique_ptr<Codec> make_bf16_codec(DataType type) {
  TERSUM_CHECK(type == DataType::kFloat32 || type == DataType::kFloat16);
  return std::make_unique<Bf16Codec>(type);
}

}  // namespace tersum
