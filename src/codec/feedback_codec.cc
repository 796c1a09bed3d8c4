#include "codec/feedback_codec.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/combine_checks.h"
#include "codec/kernels/element_kernels.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

// What a slice is worked on in; grows to the largest slice of the thread.
struct SliceMemory {
  std::vector<float> sums;        // what was to be sent
  std::vector<std::byte> values;  // of the value type, or float32
};

SliceMemory& slice_memory(size_t count) {
  thread_local SliceMemory memory;
  if (memory.sums.size() < count) {
    memory.sums.resize(count);
    memory.values.resize(count * sizeof(float));
  }
  return memory;
}

// `values` to an array of the kind.
void store_values(ValueKind kind, const float* values, size_t count, void* array) {
  alignas(64) float tile[kTileMemory];
  for (size_t first = 0; first < count; first += kTileValues) {
    const size_t here = std::min(kTileValues, count - first);
    std::copy_n(values + first, here, tile);
    element_kernels().store(kind, tile, here, array, first);
  }
}

class FeedbackCodec final : public Codec {
 public:
  FeedbackCodec(const PlainSpec& spec, std::unique_ptr<const Codec> inner,
                std::unique_ptr<const Codec> wide, DataType type)
      : spec_(describe_spec(spec)),
        kind_(value_kind(type)),
        largest_(float_from_bits(overflow_bits_of(kind_) - 1)),
        inner_(std::move(inner)),
        wide_(std::move(wide)) {
    TERSUM_CHECK(inner_->value_type() == type && wide_->value_type() == DataType::kFloat32);
  }

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return inner_->value_type(); }
  [[nodiscard]] uint32_t block() const override { return inner_->block(); }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override { return inner_->wire_bytes(count); }
  [[nodiscard]] bool takes_hops() const override { return inner_->takes_hops(); }
  [[nodiscard]] bool flattens() const override { return inner_->flattens(); }
  [[nodiscard]] bool feeds_back() const override { return true; }
  [[nodiscard]] const Codec& gathered(uint32_t ranks) const override {
    return inner_->gathered(ranks);
  }

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override;
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    inner_->decode(wire, count, values, place);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override {
    inner_->decode_part(wire, cut, values, place);
  }
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override {
    return inner_->check_wire(wire, count);
  }
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override;
  // Of one coding with nothing owed.
  [[nodiscard]] double block_error_bound(double absmax) const override {
    return inner_->block_error_bound(absmax);
  }

 private:
  // To memory.sums: the values and what is owed of them.
  void add_owed(const void* values, size_t count, SliceMemory& memory,
                const SlicePlace& place) const;
  // memory.sums as values of the type, which float32 are already; else in memory.values.
  const void* narrow(size_t count, SliceMemory& memory) const;
  // What of memory.sums is owed where others will add up what `wire` holds: a contribution or a
  // partial sum, decoded without rounding to the type.
  void keep_lost_of_term(const std::byte* wire, size_t count, SliceMemory& memory,
                         const SlicePlace& place) const;

  CodecSpec spec_;
  ValueKind kind_;
  float largest_;  // number of the value type, before rounding
  std::unique_ptr<const Codec> inner_;
  std::unique_ptr<const Codec> wide_;
};

void FeedbackCodec::add_owed(const void* values, size_t count, SliceMemory& memory,
                             const SlicePlace& place) const {
  element_kernels().add_owed(kind_, values, count, largest_, place.owed + place.first,
                             memory.sums.data());
}

const void* FeedbackCodec::narrow(size_t count, SliceMemory& memory) const {
  if (kind_ == ValueKind::kFloat32) return memory.sums.data();
  store_values(kind_, memory.sums.data(), count, memory.values.data());
  return memory.values.data();
}

void FeedbackCodec::keep_lost_of_term(const std::byte* wire, size_t count, SliceMemory& memory,
                                      const SlicePlace& place) const {
  wide_->decode(wire, count, memory.values.data(), place);
  element_kernels().keep_lost(ValueKind::kFloat32, memory.sums.data(), memory.values.data(), count,
                              1, place.owed + place.first);
}

void FeedbackCodec::encode(const void* values, size_t count, std::byte* wire,
                           const SlicePlace& place) const {
  if (place.owed == nullptr) return inner_->encode(values, count, wire, place);
  SliceMemory& memory = slice_memory(count);
  add_owed(values, count, memory, place);
  inner_->encode(narrow(count, memory), count, wire, place);
  keep_lost_of_term(wire, count, memory, place);
}

void FeedbackCodec::combine(std::span<const std::byte* const> wires, const void* own,
                            size_t own_index, size_t count, const CombineFinish& finish,
                            std::byte* wire_out, void* values_out, const SlicePlace& place) const {
  if (place.owed == nullptr || own == nullptr) {
    return inner_->combine(wires, own, own_index, count, finish, wire_out, values_out, place);
  }
  SliceMemory& memory = slice_memory(count);
  float* const sums = memory.sums.data();
  add_owed(own, count, memory, place);
  const bool goes_straight = wire_out == nullptr && kind_ == ValueKind::kFloat32;
  wide_->combine(wires, sums, own_index, count, {finish.op, finish.divisor, 1}, nullptr,
                 goes_straight ? values_out : sums, place);
  if (goes_straight) return;
  if (wire_out == nullptr) return store_values(kind_, sums, count, values_out);
  const Codec& gathered = inner_->gathered(finish.gathered_ranks);
  gathered.encode(narrow(count, memory), count, wire_out, place);
  // A partial sum goes on to the next adder.
  const bool is_final = finish.gathered_ranks > 1 || values_out != nullptr;
  if (!is_final) return keep_lost_of_term(wire_out, count, memory, place);
  void* const back = values_out != nullptr ? values_out : memory.values.data();
  gathered.decode(wire_out, count, back, place);
  const bool divides = finish.op == ReduceOp::kAverage;
  const float factor = divides ? static_cast<float>(finish.divisor) : 1.0F;
  element_kernels().keep_lost(kind_, sums, back, count, factor, place.owed + place.first);
}

}  // namespace

std::unique_ptr<Codec> make_feedback_codec(const PlainSpec& spec,
                                           std::unique_ptr<const Codec> inner,
                                           std::unique_ptr<const Codec> wide, DataType type) {
  return std::make_unique<FeedbackCodec>(spec, std::move(inner), std::move(wide), type);
}

}  // namespace tersum
