// The table of all codecs: find_codec. Adding a wire format is its file and a row in make_codec.
#include <array>
#include <bit>

#include "base/check.h"
#include "codec/bf16_codec.h"
#include "codec/block_codec.h"
#include "codec/codec.h"
#include "codec/codec_spec.h"
#include "codec/exact_codec.h"
#include "codec/kernels/block_format.h"

namespace tersum {
namespace {

constexpr size_t kBlockChoices = 6;  // 32, 64, …, 1024
static_assert((kBlockMin << (kBlockChoices - 1)) == kBlockMax);

constexpr bool is_short_float(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kBFloat16 || type == DataType::kFloat16;
}

// The spec that serves `type` and `op`: the exact path where `spec` cannot.
PlainSpec served_spec(const PlainSpec& spec, DataType type, ReduceOp op) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  const bool is_same_type = spec.base == CodecBase::kBFloat16 && type == DataType::kBFloat16;
  if (!sums || !is_short_float(type) || is_same_type) return {};
  return spec;
}

std::unique_ptr<Codec> make_codec(CodecBase base, uint32_t block, DataType type) {
  switch (base) {
    case CodecBase::kExact:
      return make_exact_codec(type);
    case CodecBase::kBFloat16:
      return make_bf16_codec(type);
    case CodecBase::kInt8:
      return make_block_codec(8, block, type);
    case CodecBase::kInt4:
      return make_block_codec(4, block, type);
  }
  return nullptr;
}

// Every codec there is, made together at the first use and kept for ever: about 50 small objects.
class CodecTable {
 public:
  CodecTable() {
    for (size_t t = 0; t < kDataTypeCount; ++t) {
      const auto type = static_cast<DataType>(t);
      put({CodecBase::kExact, 0}, type);
      if (!is_short_float(type)) continue;
      if (type != DataType::kBFloat16) put({CodecBase::kBFloat16, 0}, type);
      for (uint32_t block = kBlockMin; block <= kBlockMax; block *= 2) {
        put({CodecBase::kInt8, block}, type);
        put({CodecBase::kInt4, block}, type);
      }
    }
  }

  [[nodiscard]] const Codec* get(const PlainSpec& spec, DataType type) const {
    return codecs_[place(spec, type)].get();
  }

 private:
  static size_t place(const PlainSpec& spec, DataType type) {
    const size_t choice =
        spec.block == 0 ? 0 : static_cast<size_t>(std::countr_zero(spec.block / kBlockMin));
    return (static_cast<size_t>(spec.base) * kBlockChoices + choice) * kDataTypeCount +
           static_cast<size_t>(type);
  }
  void put(const PlainSpec& spec, DataType type) {
    codecs_[place(spec, type)] = make_codec(spec.base, spec.block, type);
  }

  std::array<std::unique_ptr<const Codec>, 4 * kBlockChoices * kDataTypeCount> codecs_;
};

const CodecTable& codec_table() {
  static const auto* const table = new CodecTable();
  return *table;
}

}  // namespace

Result<const Codec*> find_codec(std::string_view spec, DataType type, ReduceOp op) {
  PlainSpec plain;
  if (!read_spec(spec, plain)) return explain_spec(spec);
  const Codec* const codec = codec_table().get(served_spec(plain, type, op), type);
  TERSUM_CHECK(codec != nullptr);
  return codec;
}

}  // namespace tersum
