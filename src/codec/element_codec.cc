#include "codec/element_codec.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "codec/channel_state.h"
#include "codec/combine_checks.h"
#include "codec/element_checks.h"
#include "codec/hadamard_signs.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_slice.h"
#include "codec/kronecker_transforms.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

static_assert(kFactorTail >= kTileMemory, "a tile may begin at any channel");

class ElementCodec final : public Codec {
 public:
  ElementCodec(const PlainSpec& spec, const ElementFormat& format, DataType type,
               std::unique_ptr<const SharedSums> sums)
      : spec_(describe_spec(spec)),
        type_(type),
        format_(format),
        sums_(std::move(sums)),
        flattens_(spec.flatten),
        is_random_(spec.sr) {
    if (spec.shiftadd) {
      format_.sums_codes = true;
      format_.rule = ScaleRule::kE8M0Up;
    }
    if (spec.floor) format_.rule = ScaleRule::kE8M0Floor;
    const bool powers = format_.rule == ScaleRule::kE8M0Up || format_.rule == ScaleRule::kE8M0Floor;
    takes_hops_ = spec.hops || !powers;
    format_.kind = value_kind(type);
    format_.block = spec.block;
    complete_format(format_);
    if (spec.flatten || spec.hadamard) {
      const HadamardSigns& signs = hadamard_signs(spec.block);
      transform_.signs = signs.forward.data();
      transform_.undo_signs = signs.undo.data();
      transform_.reach = spec.block;
    }
    if (spec.kronecker != 0) use(kronecker_transform(spec.kronecker));
  }

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return type_; }
  [[nodiscard]] uint32_t block() const override { return format_.granule; }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override {
    return slice_bytes(format_, count);
  }
  [[nodiscard]] bool takes_hops() const override { return takes_hops_; }
  [[nodiscard]] bool flattens() const override { return flattens_; }
  [[nodiscard]] bool is_random() const override {
    return is_random_ || (sums_ != nullptr && sums_->is_random());
  }
  [[nodiscard]] bool quantizes_own() const override { return format_.sums_codes; }
  [[nodiscard]] const SharedSums* shared_sums() const override { return sums_.get(); }
  [[nodiscard]] const ElementFormat* element_format() const override { return &format_; }
  void put_transform(const SlicePlace& place, TileTransform& transform) const override {
    transform = coding(place).transform;
  }
  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override {
    encode_elements(coding(place), values, count, wire);
  }
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    decode_elements(coding(place), wire, count, 0, count, values);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override {
    cut.check(format_.granule);
    decode_elements(coding(place), wire, cut.count, cut.begin, cut.part, values);
  }
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override {
    return check_elements(format_, wire, count);
  }
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override {
    TERSUM_CHECK(finish.op == ReduceOp::kSum || finish.op == ReduceOp::kAverage);
    combine_elements(coding(place), checked_combine_args(wires, own, own_index, count, finish,
                                                         wire_out, values_out));
  }
  [[nodiscard]] double block_error_bound(double absmax) const override;

 private:
  void use(const KroneckerTransform& transform);
  [[nodiscard]] SliceCoding coding(const SlicePlace& place) const;
  [[nodiscard]] double kronecker_error_bound(double absmax) const;
  [[nodiscard]] double base_error_bound(double absmax) const;
  [[nodiscard]] double bound_at(double absmax) const;

  CodecSpec spec_;
  DataType type_;
  ElementFormat format_;
  std::unique_ptr<const SharedSums> sums_;
  TileTransform transform_;
  const KroneckerTransform* kronecker_ = nullptr;
  bool flattens_;
  bool is_random_;
  bool takes_hops_ = true;
};

void ElementCodec::use(const KroneckerTransform& transform) {
  kronecker_ = &transform;
  transform_.product = &transform.there;
  transform_.undo_product = &transform.back;
  transform_.diagonal = transform.diagonal;
  transform_.undo_diagonal = transform.undo_diagonal;
  transform_.period = transform.channels;
  transform_.reach = transform.back_norm * transform.undo_max;
  // Each matrix of a transform makes a magnitude of 1 at most 4 kConditionMax = 2^12, both 2^24.
  transform_.damp = 0x1p-40F;
  transform_.slack = 0x1p-12;
  transform_.looks_at_values = false;
}

SliceCoding ElementCodec::coding(const SlicePlace& place) const {
  SliceCoding coding{format_,    element_kernels(), transform_,  place.first,
                     is_random_, place.rounding,    place.added, place.measure};
  if (flattens_ && place.factors != nullptr) {
    coding.transform.diagonal = place.factors->forward;
    coding.transform.undo_diagonal = place.factors->undo;
    coding.transform.period = place.factors->channels;
    coding.transform.reach *= place.factors->undo_max;
  }
  return coding;
}

// Holds for smaller blocks, too, as sums and wrapping codecs need it: a scale that is rounded down
// saturates most just below a power of two.
double ElementCodec::base_error_bound(double absmax) const {
  const double bound = bound_at(absmax);
  if (format_.rule != ScaleRule::kE8M0Floor || absmax == 0 || !std::isfinite(absmax)) return bound;
  const double below = std::ldexp(1 - std::ldexp(1.0, -24), std::ilogb(absmax));
  return std::max(bound, bound_at(below));
}

// Of a block whose largest magnitude it is.
double ElementCodec::bound_at(double absmax) const {
  // A mean may be anywhere up to the largest magnitude, and so may what it misses; below the least
  // normal number it is a multiple of 2^-133.
  if (format_.rule == ScaleRule::kBf16Mean) {
    return absmax * (1 + std::ldexp(1.0, -7)) + std::ldexp(1.0, -134);
  }
  // What is beyond the clip loses what is beyond it; 0 is a level.
  if (format_.rule == ScaleRule::kSlice) return absmax;
  // A block far below the slice's largest magnitude has the least scale there is, or none.
  if (format_.rule == ScaleRule::kE4M3Tensor) return absmax;
  auto above = static_cast<float>(absmax);
  if (double{above} < absmax) {
    above = std::nextafter(above, std::numeric_limits<float>::infinity());
  }
  std::array<std::byte, 4> wire{};
  const double scale = choose_scale(format_, float_bits(above), 0, wire.data());
  if (!(scale < std::numeric_limits<double>::infinity())) {
    return std::numeric_limits<double>::infinity();
  }
  const double reach = format_.level_max * scale;
  // Before the code is chosen the reciprocal and the product are rounded, after it the product of
  // level and scale.
  const double arithmetic = std::ldexp(3 * reach, -24);
  // To the nearest level, or to either neighbour.
  const double farthest = is_random_ ? format_.gap_max : format_.gap_max / 2;
  const double beyond = std::max(0.0, absmax - reach) + scale * format_.edge_max;
  return std::max(scale * farthest, beyond) + arithmetic;
}

// There c, back r and the diagonal's undoing u make of a magnitude of 1; sums of n terms carry
// n 2^-24 of the sum of their terms' magnitudes, and twice that covers both sides' sums one after
// the other, the inverses' own rounding, and what is of second order. Products below the least
// normal number lose up to 2^-150 each, which the last term covers.
double ElementCodec::kronecker_error_bound(double absmax) const {
  const KroneckerTransform& k = *kronecker_;
  const auto terms = static_cast<double>(k.there.rows + k.there.columns + 4);
  const double rounding = std::ldexp(2 * terms, -24);
  const double tiny = std::ldexp(terms, -149);
  const double most = k.there_norm * absmax * (1 + rounding) + tiny;
  const double coded = base_error_bound(most);
  const double there = rounding * k.there_norm * absmax + tiny;
  const double back = rounding * k.back_norm * (most + coded) + tiny * (1 + k.back_norm);
  const double whole = k.residual * absmax + k.back_norm * (coded + there) + back;
  // A shorter last block has the diagonal alone; four roundings of factors and products.
  const double diagonal = std::ldexp(4 * (absmax + whole), -24) + tiny;
  return k.undo_max * (std::max(whole, base_error_bound(absmax)) + diagonal);
}

// Each error of the transformed block reaches each value of the block, and the transformed values
// are no larger than the block's (there is a division by B on the way there).
double ElementCodec::block_error_bound(double absmax) const {
  if (absmax == 0) return 0;
  double bound = kronecker_ != nullptr ? kronecker_error_bound(absmax) : base_error_bound(absmax);
  if (transform_.signs != nullptr) {
    const auto block = static_cast<double>(format_.block);
    // Twice log2(B) roundings of sums that stay below B * absmax.
    const double sums = 2 * std::log2(block) * block * absmax * std::ldexp(1.0, -24);
    bound = block * bound + sums;
  }
  // A diagonal may bring a value's error back to it multiplied by its undoing; three more
  // roundings.
  if (flattens_) bound = ChannelState::kUndoMax * (bound + std::ldexp(3 * absmax, -24));
  return bound + rounding_error(format_.kind, absmax + bound);
}

}  // namespace

std::unique_ptr<Codec> make_element_codec(const PlainSpec& spec, const ElementFormat& format,
                                          DataType type, std::unique_ptr<const SharedSums> sums) {
  return std::make_unique<ElementCodec>(spec, format, type, std::move(sums));
}

}  // namespace tersum
