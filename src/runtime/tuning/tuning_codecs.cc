#include "runtime/tuning/tuning_codecs.h"

#include "base/check.h"
#include "codec/codec.h"

namespace tersum {

const std::vector<std::string_view>& tuning_codecs() {
  static const auto* const codecs =
      new std::vector<std::string_view>{"exact", "bf16", "int8/128", "int4/128"};
  return *codecs;
}

double tuning_wire_ratio(std::string_view codec) {
  constexpr size_t kValues = 1024;
  const Result<const Codec*> found = find_codec(codec, DataType::kFloat32, ReduceOp::kSum);
  TERSUM_CHECK(found.ok());
  return static_cast<double>(found.value()->wire_bytes(kValues)) / (kValues * sizeof(float));
}

}  // namespace tersum
