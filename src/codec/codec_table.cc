#include "codec/codec_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "codec/adaptive_codec.h"
#include "codec/clip_codec.h"
#include "codec/codec_spec.h"
#include "codec/feedback_codec.h"
#include "codec/kmeans_codec.h"
#include "codec/mixed_codec.h"
#include "codec/rows_codec.h"
#include "codec/sparse_codec.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

// The spec that serves `type` and `op`: the exact path where `spec` cannot.
PlainSpec served_spec(const PlainSpec& spec, DataType type, ReduceOp op) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  const bool is_same_type = format_row(spec).name == "bf16" && type == DataType::kBFloat16;
  if (!sums || !is_short_float(type) || is_same_type) return {};
  return spec;
}

std::unique_ptr<const Codec> make_base(const PlainSpec& spec, DataType type) {
  return format_row(spec).make(spec, type);
}

// The row of the integers with one bit more or less; `format` is that of one.
uint8_t integer_beside(uint8_t format, int more) {
  std::string name(format_rows()[format].name);
  name.back() = static_cast<char>(name.back() + more);
  return find_format_row(name).value();
}

std::unique_ptr<const Codec> make_mixed(const PlainSpec& spec, DataType type) {
  PlainSpec same = spec;
  same.mixed = false;
  PlainSpec more = same;
  more.format = integer_beside(spec.format, 1);
  PlainSpec less = same;
  less.format = integer_beside(spec.format, -1);
  return make_mixed_codec(spec,
                          {make_base(same, DataType::kFloat32), make_base(more, DataType::kFloat32),
                           make_base(less, DataType::kFloat32)},
                          type);
}

std::unique_ptr<const Codec> make_adaptive(const PlainSpec& spec, DataType type) {
  PlainSpec inner = spec;
  inner.adaptive = false;
  inner.block = kAdaptiveLeast;
  const std::unique_ptr<const Codec> smallest = make_base(inner, DataType::kFloat32);
  TERSUM_CHECK(smallest->element_format() != nullptr);
  return make_adaptive_codec(spec, *smallest->element_format(), type);
}

std::unique_ptr<const Codec> make_clip(const PlainSpec& spec, DataType type) {
  std::unique_ptr<const Codec> in_blocks = make_base(spec, type);
  TERSUM_CHECK(in_blocks->element_format() != nullptr);
  return make_clip_codec(spec, std::move(in_blocks), type);
}

// Modifiers from the outside in: each wraps the codec of what is left of the spec.
// NOLINTNEXTLINE(misc-no-recursion): one step for each modifier.
std::unique_ptr<const Codec> make_codec(const PlainSpec& spec, DataType type) {
  PlainSpec inner = spec;
  if (format_row(spec).learned_levels > 0) {
    return make_kmeans_codec(spec, make_codec(first_spec(spec), type), type);
  }
  if (spec.feedback) {
    inner.feedback = false;
    return make_feedback_codec(spec, make_codec(inner, type), make_codec(inner, DataType::kFloat32),
                               type);
  }
  if (spec.rows > 0) {
    inner.rows = 0;
    return make_rows_codec(spec, make_codec(inner, type));
  }
  if (spec.sparse > 0) {
    inner.sparse = 0;
    return make_sparse_codec(spec, make_codec(inner, DataType::kFloat32), type);
  }
  if (spec.mixed) return make_mixed(spec, type);
  if (spec.adaptive) return make_adaptive(spec, type);
  if (spec.clip) return make_clip(spec, type);
  return make_base(spec, type);
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

// What a thread has found last: its calls ask for the same few again and again, and to read a spec
// and look it up takes 0.1 us, several times a call. Short specs only, so that nothing is
// allocated, and none with a ':', which may name a table that comes to have other levels.
class RecentCodecs {
 public:
  [[nodiscard]] const Codec* find(std::string_view spec, DataType type, ReduceOp op) const {
    for (const Entry& entry : entries_) {
      const std::string_view known(entry.spec.data(), entry.spec_chars);
      if (entry.type == type && entry.op == op && known == spec) return entry.codec;
    }
    return nullptr;
  }
  void add(std::string_view spec, DataType type, ReduceOp op, const Codec* codec) {
    if (spec.size() > kSpecCharsMax || spec.find(':') != std::string_view::npos) return;
    Entry& entry = entries_[next_++ % entries_.size()];
    std::copy(spec.begin(), spec.end(), entry.spec.begin());
    entry.spec_chars = spec.size();
    entry.type = type;
    entry.op = op;
    entry.codec = codec;
  }

 private:
  static constexpr size_t kSpecCharsMax = 24;
  struct Entry {
    std::array<char, kSpecCharsMax> spec{};
    size_t spec_chars = 0;
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    const Codec* codec = nullptr;
  };
  std::array<Entry, 4> entries_;
  size_t next_ = 0;
};

}  // namespace

const Codec& intern_codec(const PlainSpec& spec, DataType type) {
  const Codec* const codec = codec_table().get(spec, type);
  TERSUM_CHECK(codec != nullptr);
  return *codec;
}

Result<const Codec*> find_codec(std::string_view spec, DataType type, ReduceOp op) {
  thread_local RecentCodecs recent;
  if (const Codec* const known = recent.find(spec, type, op)) return known;
  PlainSpec plain;
  if (!read_spec(spec, plain)) return explain_spec(spec);
  const Codec* const codec = &intern_codec(served_spec(plain, type, op), type);
  recent.add(spec, type, op, codec);
  return codec;
}

}  // namespace tersum
