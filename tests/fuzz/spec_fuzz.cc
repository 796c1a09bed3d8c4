// Any text as a codec spec: it is refused with a reason, or has one normal form that says the same.
#include <string>
#include <string_view>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/codec_spec.h"
#include "fuzz_input.h"

namespace tersum {
namespace {

void fuzz_spec(std::string_view text) {
  PlainSpec plain;
  const bool is_spec = read_spec(text, plain);
  const Result<CodecSpec> parsed = parse_codec_spec(text);
  TERSUM_CHECK(parsed.ok() == is_spec);
  if (!parsed.ok()) {
    TERSUM_CHECK(!parsed.status().message().empty());
    TERSUM_CHECK(!find_codec(text, DataType::kFloat32, ReduceOp::kSum).ok());
    return;
  }
  const std::string normal = parsed.value().to_string();
  const Result<CodecSpec> again = parse_codec_spec(normal);
  TERSUM_CHECK(again.ok() && again.value() == parsed.value());
  const auto codec = find_codec(text, DataType::kFloat32, ReduceOp::kSum);
  TERSUM_CHECK(codec.ok() && codec.value()->spec() == parsed.value());
  TERSUM_CHECK(find_codec(normal, DataType::kFloat32, ReduceOp::kSum).value() == codec.value());
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tersum::fuzz_spec(tersum::FuzzInput(data, size).text());
  return 0;
}
