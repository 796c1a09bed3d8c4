#include "runtime/codec_names.h"

#include "codec/codec.h"

namespace tersum {

Result<std::string> canonical_codec(std::string_view spec) {
  const Result<CodecSpec> parsed = parse_codec_spec(spec);
  if (!parsed.ok()) return parsed.status();
  // A spec may be well formed and still name a block that its format does not allow.
  const Result<const Codec*> codec = find_codec(spec, DataType::kFloat32, ReduceOp::kSum);
  if (!codec.ok()) return codec.status();
  return parsed.value().to_string();
}

}  // namespace tersum
