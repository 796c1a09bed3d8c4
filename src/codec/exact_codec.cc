#include "codec/exact_codec.h"

#include "codec/dense_codec.h"

namespace tersum {
namespace {

class ExactCodec final : public DenseCodec {
 public:
  explicit ExactCodec(DataType type)
      : DenseCodec(CodecSpec{"exact", 0, {}}, DenseFormat{type, DenseWire::kExact}) {}

  [[nodiscard]] bool lossless() const override { return true; }
  [[nodiscard]] bool wire_is_values() const override { return true; }
  [[nodiscard]] double block_error_bound(double) const override { return 0; }
};

}  // namespace

std::unique_ptr<Codec> make_exact_codec(DataType type) {
  return std::make_unique<ExactCodec>(type);
}

}  // namespace tersum
