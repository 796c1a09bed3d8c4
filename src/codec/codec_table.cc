#include "codec/codec_table.h"

#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/check.h"
#include "codec/codec_spec.h"
#include "codec/rows_codec.h"
#include "codec/sparse_codec.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

// The spec that serves `type` and `op`: the exact path where `spec` cannot.
PlainSpec served_spec(const PlainSpec& spec, DataType type, ReduceOp op) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  const bool is_same_type =
      format_rows()[spec.format].name == "bf16" && type == DataType::kBFloat16;
  if (!sums || !is_short_float(type) || is_same_type) return {};
  return spec;
}

// Modifiers from the outside in: each wraps the codec of what is left of the spec.
// NOLINTNEXTLINE(misc-no-recursion): one step for each modifier.
std::unique_ptr<const Codec> make_codec(const PlainSpec& spec, DataType type) {
  PlainSpec inner = spec;
  if (spec.rows > 0) {
    inner.rows = 0;
    return make_rows_codec(spec, make_codec(inner, type));
  }
  if (spec.sparse > 0) {
    inner.sparse = 0;
    return make_sparse_codec(spec, make_codec(inner, DataType::kFloat32), type);
  }
  return format_rows()[spec.format].make(spec, type);
}

// Codecs are made at their first use and kept for ever. Any thread.
class CodecTable {
 public:
  const Codec* get(const PlainSpec& spec, DataType type) {
    const Key key{spec, type};
    {
      const std::shared_lock lock(mutex_);
      const auto found = codecs_.find(key);
      if (found != codecs_.end()) return found->second.get();
    }
    const std::unique_lock lock(mutex_);
    std::unique_ptr<const Codec>& codec = codecs_[key];
    if (!codec) codec = make_codec(spec, type);
    return codec.get();
  }

 private:
  using Key = std::pair<PlainSpec, DataType>;

  std::shared_mutex mutex_;
  std::map<Key, std::unique_ptr<const Codec>> codecs_;
};

CodecTable& codec_table() {
  static auto* const table = new CodecTable();
  return *table;
}

}  // namespace

const Codec& intern_codec(const PlainSpec& spec, DataType type) {
  const Codec* const codec = codec_table().get(spec, type);
  TERSUM_CHECK(codec != nullptr);
  return *codec;
}

Result<const Codec*> find_codec(std::string_view spec, DataType type, ReduceOp op) {
  PlainSpec plain;
  if (!read_spec(spec, plain)) return explain_spec(spec);
  return &intern_codec(served_spec(plain, type, op), type);
}

}  // namespace tersum
