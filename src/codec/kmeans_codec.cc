#include "codec/kmeans_codec.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "codec/codec_table.h"
#include "codec/level_tables.h"

namespace tersum {
namespace {

class KmeansCodec final : public Codec {
 public:
  KmeansCodec(const PlainSpec& spec, std::unique_ptr<const Codec> first, DataType type)
      : plain_(spec),
        spec_(describe_spec(spec)),
        lesson_{format_row(spec).learned_levels, spec.block, spec.rows},
        first_(std::move(first)) {
    TERSUM_CHECK(lesson_.levels > 0 && first_->value_type() == type);
  }

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return first_->value_type(); }
  [[nodiscard]] uint32_t block() const override { return first_->block(); }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override { return first_->wire_bytes(count); }
  [[nodiscard]] const Codec& gathered(uint32_t ranks) const override {
    return first_->gathered(ranks);
  }
  [[nodiscard]] const LevelLesson* lesson() const override { return &lesson_; }
  [[nodiscard]] const Codec& taught(uint16_t table) const override {
    PlainSpec spec = plain_;
    spec.format = kTableFormat;
    spec.table = table;
    return intern_codec(spec, value_type());
  }

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override {
    first_->encode(values, count, wire, place);
  }
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    first_->decode(wire, count, values, place);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override {
    first_->decode_part(wire, cut, values, place);
  }
  void mark_outliers(const std::byte* wire, size_t count, size_t first,
                     OutlierPlaces& places) const override {
    first_->mark_outliers(wire, count, first, places);
  }
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override {
    return first_->check_wire(wire, count);
  }
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override {
    first_->combine(wires, own, own_index, count, finish, wire_out, values_out, place);
  }
  // That of any levels: a value is at most absmax, and a level at most the scale, which is rounded
  // up to 8 bits.
  [[nodiscard]] double block_error_bound(double absmax) const override {
    return first_->block_error_bound(absmax) + (2 + 1.0 / 128) * absmax;
  }

 private:
  PlainSpec plain_;
  CodecSpec spec_;
  LevelLesson lesson_;
  std::unique_ptr<const Codec> first_;
};

}  // namespace

std::unique_ptr<Codec> make_kmeans_codec(const PlainSpec& spec, std::unique_ptr<const Codec> first,
                                         DataType type) {
  return std::make_unique<KmeansCodec>(spec, std::move(first), type);
}

PlainSpec first_spec(const PlainSpec& spec) {
  PlainSpec first = spec;
  first.format = find_format_row("int8").value();
  return first;
}

const Codec& with_levels(const Codec* codec) {
  const LevelLesson* const lesson = codec->lesson();
  if (lesson == nullptr) return *codec;
  std::array<float, kTableLevelsMax> levels{};
  for (uint32_t i = 0; i < lesson->levels; ++i) {
    levels[i] = 2 * static_cast<float>(i) / static_cast<float>(lesson->levels - 1) - 1;
  }
  const Result<uint16_t> table = register_level_table(std::span(levels).first(lesson->levels));
  return table.ok() ? codec->taught(table.value()) : *codec;
}

}  // namespace tersum
