#include "codec/clip_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "codec/clip_report.h"
#include "codec/element_codec.h"

namespace tersum {
namespace {

class ClipCodec final : public Codec {
 public:
  // `inside`: what a slice is but for its report. `blocks_format`: under the scales of blocks.
  // `held`: the codec of held calls; null: this one.
  ClipCodec(std::unique_ptr<const Codec> inside, const ElementFormat& blocks_format,
            std::unique_ptr<const Codec> held)
      : inside_(std::move(inside)), blocks_format_(blocks_format), held_(std::move(held)) {}

  [[nodiscard]] const CodecSpec& spec() const override { return inside_->spec(); }
  [[nodiscard]] DataType value_type() const override { return inside_->value_type(); }
  [[nodiscard]] uint32_t block() const override { return inside_->block(); }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] bool flattens() const override { return inside_->flattens(); }
  [[nodiscard]] size_t wire_bytes(size_t count) const override {
    return count == 0 ? 0 : inside_->wire_bytes(count) + kClipReportBytes;
  }
  [[nodiscard]] const Codec* held() const override { return held_ ? held_.get() : this; }

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override;
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    inside_->decode(wire, count, values, place);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override {
    inside_->decode_part(wire, cut, values, place);
  }
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override {
    if (count == 0) return {};
    TERSUM_RETURN_IF_ERROR(inside_->check_wire(wire, count));
    return check_clip_report(report_of(wire, count));
  }
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override;
  // A held call loses what is beyond its clip, which is not known here: 0 is a level, so no value
  // loses more than itself.
  [[nodiscard]] double block_error_bound(double absmax) const override {
    return held_ ? held_->block_error_bound(absmax) : inside_->block_error_bound(absmax);
  }

 private:
  template <class Byte>
  [[nodiscard]] Byte* report_of(Byte* wire, size_t count) const {
    return wire + inside_->wire_bytes(count);
  }
  // Of a coding under `clip`; `says_all`: whose loss is to be reported.
  [[nodiscard]] ClipMeasure measure_with(const SlicePlace& place, float clip, bool says_all) const;
  // As the codec inside is to see it.
  static SlicePlace inner_place(const SlicePlace& place, ClipMeasure& measure) {
    SlicePlace inner = place;
    inner.measure = &measure;
    return inner;
  }

  std::unique_ptr<const Codec> inside_;
  const ElementFormat& blocks_format_;
  std::unique_ptr<const Codec> held_;
};

ClipMeasure ClipCodec::measure_with(const SlicePlace& place, float clip, bool says_all) const {
  TERSUM_CHECK(held_ != nullptr || place.clips != nullptr);
  ClipMeasure measure;
  measure.blocks_format = says_all ? &blocks_format_ : nullptr;
  measure.scale = std::min(clip / blocks_format_.level_max, blocks_format_.scale_max);
  return measure;
}

// Of a sum of `terms` contributions on its way: magnitudes of sums grow as a power of how many were
// added, the root where they have nothing to do with each other and the first where they are equal.
float partial_clip(const ClipFactors& clips, uint32_t terms, uint32_t divisor) {
  const double one = clips.contribution;
  const double all = double{clips.sum} * divisor;
  if (terms <= 1 || clips.ranks <= 1 || !(one > 0) || !(all > 0)) return clips.contribution;
  const double power =
      std::log(static_cast<double>(terms)) / std::log(static_cast<double>(clips.ranks));
  const double clip = one * std::pow(all / one, power);
  return static_cast<float>(std::min(clip, double{std::numeric_limits<float>::max()}));
}

void ClipCodec::encode(const void* values, size_t count, std::byte* wire,
                       const SlicePlace& place) const {
  if (count == 0) return;
  ClipReport report;
  if (place.clips == nullptr) {
    TERSUM_CHECK(held_ != nullptr);
    inside_->encode(values, count, wire, place);
  } else {
    ClipMeasure measure = measure_with(place, place.clips->contribution, true);
    inside_->encode(values, count, wire, inner_place(place, measure));
    report.contributions = clip_part(measure);
  }
  write_clip_report(report, report_of(wire, count));
}

void ClipCodec::combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
                        size_t count, const CombineFinish& finish, std::byte* wire_out,
                        void* values_out, const SlicePlace& place) const {
  if (count == 0 || wire_out == nullptr || place.clips == nullptr) {
    TERSUM_CHECK(held_ != nullptr || wire_out == nullptr || count == 0);
    inside_->combine(wires, own, own_index, count, finish, wire_out, values_out, place);
    if (count > 0 && wire_out != nullptr) write_clip_report({}, report_of(wire_out, count));
    return;
  }
  ClipReport report;
  for (const std::byte* wire : wires) {
    report.contributions.add(read_clip_report(report_of(wire, count)).contributions, true);
  }
  // Its own is not coded, so there is nothing to say of it.
  if (own != nullptr) report.contributions.add({.terms = 1}, true);
  const bool is_final = finish.gathered_ranks > 1;
  const float clip = is_final
                         ? place.clips->sum
                         : partial_clip(*place.clips, report.contributions.terms, place.divisor);
  ClipMeasure measure = measure_with(place, clip, is_final);
  inside_->combine(wires, own, own_index, count, finish, wire_out, values_out,
                   inner_place(place, measure));
  if (is_final) report.sums = clip_part(measure);
  write_clip_report(report, report_of(wire_out, count));
}

}  // namespace

std::unique_ptr<Codec> make_clip_codec(const PlainSpec& spec,
                                       std::unique_ptr<const Codec> in_blocks, DataType type) {
  const ElementFormat& blocks_format = *in_blocks->element_format();
  ElementFormat slice_format = blocks_format;
  slice_format.rule = ScaleRule::kSlice;
  auto held = std::make_unique<ClipCodec>(make_element_codec(spec, slice_format, type),
                                          blocks_format, nullptr);
  return std::make_unique<ClipCodec>(std::move(in_blocks), blocks_format, std::move(held));
}

}  // namespace tersum
