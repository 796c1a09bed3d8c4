// What codecs of codes under shared scales are alike in: their description, and how the formats
// that add contributions side by side keep one codec for each number of ranks.
//
// Thread safety: any thread. Codecs of a number of ranks are made at its first call and live as
// long as their SharedSums.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/format_registry.h"
#include "codec/kernels/element_format.h"
#include "codec/shared_sums.h"

namespace tersum {

// Codes of some number of ranks on their way, without scales. encode(), decode_part() and the rest
// are the format's.
class SharedCodec : public Codec {
 public:
  // `format`: complete.
  SharedCodec(const PlainSpec& spec, const ElementFormat& format, DataType type, bool is_random)
      : format_(format), type_(type), spec_(describe_spec(spec)), is_random_(is_random) {}

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return type_; }
  [[nodiscard]] uint32_t block() const override { return format_.block; }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] bool is_random() const override { return is_random_; }
  [[nodiscard]] bool quantizes_own() const override { return true; }
  // Of finished sums.
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    decode_part(wire, {count, 0, count}, values, place);
  }

 protected:
  ElementFormat format_;
  DataType type_;

 private:
  CodecSpec spec_;
  bool is_random_;
};

// Sums of all contributions side by side. Kept: a class made of (spec, format, type, ranks).
template <class Kept>
class SideBySideSums : public SharedSums {
 public:
  SideBySideSums(const PlainSpec& spec, const ElementFormat& format, DataType type)
      : spec_(spec), format_(format), type_(type) {}

  [[nodiscard]] bool takes_partials() const override { return false; }
  [[nodiscard]] const Codec& contributions(uint32_t ranks) const override {
    TERSUM_CHECK(ranks >= 2 && refusal(ranks).empty());
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const Codec>& made = codecs_[ranks];
    if (made == nullptr) made = std::make_unique<Kept>(spec_, format_, type_, ranks);
    return *made;
  }
  [[nodiscard]] const Codec& partials(uint32_t ranks) const override {
    return contributions(ranks);
  }

 protected:
  PlainSpec spec_;
  ElementFormat format_;  // complete

 private:
  DataType type_;
  mutable std::mutex mutex_;
  mutable std::map<uint32_t, std::unique_ptr<const Codec>> codecs_;
};

}  // namespace tersum
