#include "codec/exact_codec.h"

#include "codec/dense_codec.h"
#include "codec/kernels/stream_copy.h"

namespace tersum {
namespace {

class ExactCodec final : public DenseCodec {
 public:
  explicit ExactCodec(DataType type)
      : DenseCodec(CodecSpec{"exact", 0, {}}, DenseFormat{type, DenseWire::kExact}) {}

  [[nodiscard]] bool lossless() const override { return true; }
  [[nodiscard]] bool wire_is_values() const override { return true; }
  bool stream(const std::byte* wire, size_t count, void* values) const override {
    stream_copy(static_cast<std::byte*>(values), wire, wire_bytes(count));
    return true;
  }
  [[nodiscard]] double block_error_bound(double) const override { return 0; }
};

}  // namespace

std::unique_ptr<Codec> make_exact_codec(DataType type) {
  return std::make_unique<ExactCodec>(type);
}

}  // namespace tersum
