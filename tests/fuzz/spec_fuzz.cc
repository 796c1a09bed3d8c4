// Any text as a codec spec: it is refused with a reason, or has one normal form that says the same.
// And as the files that a spec may name, of levels or of matrices: refused with the file's name, or
// levels that ascend within 1, or numbers of allowed shapes.
#include <cmath>
#include <string>
#include <string_view>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/codec_spec.h"
#include "codec/kernels/block_product.h"
#include "codec/kronecker_file.h"
#include "codec/kronecker_transforms.h"
#include "codec/level_tables.h"
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

constexpr std::string_view kFile = "numbers.txt";

void check_refusal(const Status& status) {
  TERSUM_CHECK(status.code() == StatusCode::kInvalidArgument);
  TERSUM_CHECK(status.message().find(kFile) != std::string_view::npos);
}

void fuzz_table(std::string_view text) {
  const auto levels = parse_level_table(kFile, text);
  if (!levels.ok()) return check_refusal(levels.status());
  const size_t count = levels.value().size();
  TERSUM_CHECK(count == 2 || count == 4 || count == 8 || count == kTableLevelsMax);
  for (size_t i = 0; i < count; ++i) {
    TERSUM_CHECK(std::abs(levels.value()[i]) <= 1);
    TERSUM_CHECK(i == 0 || levels.value()[i - 1] < levels.value()[i]);
  }
}

void fuzz_matrices(std::string_view text) {
  const auto read = parse_kronecker(kFile, text);
  if (!read.ok()) return check_refusal(read.status());
  const KroneckerNumbers& numbers = read.value();
  for (const auto* part : {&numbers.p1, &numbers.p2}) {
    const auto side = static_cast<size_t>(std::lround(std::sqrt(part->size())));
    TERSUM_CHECK(side * side == part->size() && side <= kProductSideMax);
  }
  TERSUM_CHECK(numbers.diagonal.size() <= kDiagonalMax);
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tersum::FuzzInput input(data, size);
  tersum::fuzz_spec(input.text());
  tersum::fuzz_table(input.text());
  tersum::fuzz_matrices(input.text());
  return 0;
}
