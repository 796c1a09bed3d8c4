#include "codec/sparse_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/codec_table.h"
#include "codec/combine_checks.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/outlier_selection.h"
#include "codec/outlier_places.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

constexpr size_t kEntryBytes = 4;

// A section's place in its slice and on the wire.
struct Section {
  size_t first = 0;  // value of the slice
  size_t count = 0;
  size_t outliers = 0;
  size_t wire_offset = 0;

  [[nodiscard]] size_t payload_offset() const { return wire_offset + outliers * kEntryBytes; }
};

struct Entry {
  size_t index = 0;
  float value = 0;
};

Entry read_entry(const std::byte* wire) {
  return {load_unaligned<uint16_t>(wire),
          canonical_nan(bf16_to_float(load_unaligned<uint16_t>(wire + 2)))};
}

// What a section is coded in. Tiles have the padding that kernels may touch.
struct SectionMemory {
  alignas(64) float values[kSectionValues + kTilePad];
  alignas(64) float own[kSectionValues + kTilePad];
  uint16_t indices[kSectionValues];
  OutlierScratch outliers;
  std::vector<const std::byte*> wires;
};

SectionMemory& section_memory() {
  thread_local const std::unique_ptr<SectionMemory> memory(new SectionMemory);
  return *memory;
}

class SparseCodec final : public Codec {
 public:
  SparseCodec(const PlainSpec& spec, std::unique_ptr<const Codec> dense, DataType type)
      : plain_(spec),
        spec_(describe_spec(spec)),
        type_(type),
        kind_(value_kind(type)),
        dense_(std::move(dense)),
        overflow_bits_(overflow_bits_of(kind_)) {
    TERSUM_CHECK(spec.sparse > 0 && spec.sparse <= kSparseMax);
    TERSUM_CHECK(dense_->value_type() == DataType::kFloat32);
    TERSUM_CHECK(kSectionValues % dense_->block() == 0);
  }

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return type_; }
  [[nodiscard]] uint32_t block() const override { return dense_->block(); }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override;
  [[nodiscard]] bool takes_hops() const override { return dense_->takes_hops(); }
  [[nodiscard]] bool flattens() const override { return dense_->flattens(); }
  [[nodiscard]] bool is_random() const override { return dense_->is_random(); }
  [[nodiscard]] const Codec& gathered(uint32_t ranks) const override;

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override;
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    decode_part(wire, {count, 0, count}, values, place);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override;
  void mark_outliers(const std::byte* wire, size_t count, size_t first,
                     OutlierPlaces& places) const override;
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override;
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override;
  [[nodiscard]] double block_error_bound(double absmax) const override;

 private:
  // `share`: of the values, in units of PlainSpec::sparse.
  [[nodiscard]] Section section_at(size_t first, size_t count, uint32_t share) const;
  [[nodiscard]] size_t section_bytes(size_t count, uint32_t share) const {
    return outlier_count(count, share) * kEntryBytes + dense_->wire_bytes(count);
  }
  static size_t outlier_count(size_t count, uint32_t share) {
    return (count * share + kSparseWhole - 1) / kSparseWhole;
  }
  [[nodiscard]] uint32_t gathered_share(uint32_t ranks) const {
    return gathered_spec(plain_, ranks).sparse;
  }
  [[nodiscard]] float largest() const { return float_from_bits(overflow_bits_ - 1); }
  [[nodiscard]] uint16_t entry_bits(float value) const;

  // Of the slice's values, with what is added to them.
  void load_section(const void* values, const Section& section, float* to,
                    const SlicePlace& place) const;
  // From memory.values, which ends as what `dense_` was given.
  void encode_section(const Section& section, SectionMemory& memory, std::byte* wire,
                      const SlicePlace& place) const;
  void split_outliers(const Section& section, SectionMemory& memory, std::byte* entries) const;
  // Values begin..begin+part-1 of the section, to `values` + to in values of the type.
  void decode_section(const Section& section, const std::byte* wire, size_t begin, size_t part,
                      SectionMemory& memory, void* values, size_t to,
                      const SlicePlace& place) const;
  void add_entries(const Section& section, const std::byte* wire, size_t begin, size_t part,
                   float* values) const;
  // To memory.values: the sum, divided.
  void sum_section(const Section& section, std::span<const std::byte* const> wires, const void* own,
                   size_t own_index, const CombineFinish& finish, SectionMemory& memory,
                   const SlicePlace& place) const;
  [[nodiscard]] Status check_entries(const Section& section, const std::byte* wire) const;

  PlainSpec plain_;
  CodecSpec spec_;
  DataType type_;
  ValueKind kind_;
  std::unique_ptr<const Codec> dense_;
  uint32_t overflow_bits_;  // magnitudes from here on are no finite number of the value type
};

SlicePlace place_in(const SlicePlace& slice, const Section& section) {
  return {slice.first + section.first, slice.factors, slice.rounding, nullptr, {}};
}

Section SparseCodec::section_at(size_t first, size_t count, uint32_t share) const {
  Section section;
  section.first = first;
  section.count = std::min(kSectionValues, count - first);
  section.outliers = outlier_count(section.count, share);
  section.wire_offset = first / kSectionValues * section_bytes(kSectionValues, share);
  return section;
}

size_t SparseCodec::wire_bytes(size_t count) const {
  const size_t rest = count % kSectionValues;
  const size_t whole = count / kSectionValues * section_bytes(kSectionValues, plain_.sparse);
  return whole + (rest > 0 ? section_bytes(rest, plain_.sparse) : 0);
}

const Codec& SparseCodec::gathered(uint32_t ranks) const {
  return intern_codec(gathered_spec(plain_, ranks), type_);
}

// The nearest bf16; finite numbers stay finite in the value type.
uint16_t SparseCodec::entry_bits(float value) const {
  const uint16_t most = kind_ == ValueKind::kFloat16 ? 0x477f : 0x7f7f;
  const uint16_t bits = float_to_bf16(value);
  return (bits & 0x7fff) > most ? static_cast<uint16_t>((bits & 0x8000) | most) : bits;
}

// Takes the outliers out. What bf16 does not send of one is left in its place, unless that is more
// than the least outlier: then it would widen its block, and zero is left.
void SparseCodec::split_outliers(const Section& section, SectionMemory& memory,
                                 std::byte* entries) const {
  float* const values = memory.values;
  select_outliers({values, section.count}, overflow_bits_, section.outliers, memory.outliers,
                  memory.indices);
  const std::span<const uint16_t> indices(memory.indices, section.outliers);
  const auto is_finite = [&](float value) {
    return (float_bits(value) & ~kFloatSignBit) < overflow_bits_;
  };
  float least = std::numeric_limits<float>::infinity();
  for (const uint16_t index : indices) {
    least = std::min(least, is_finite(values[index]) ? std::abs(values[index]) : 0.0F);
  }
  for (const uint16_t index : indices) {
    float& value = values[index];
    const uint16_t bits = entry_bits(is_finite(value) ? value : 0.0F);
    store_unaligned(entries, index);
    store_unaligned(entries + 2, bits);
    entries += kEntryBytes;
    if (!is_finite(value)) continue;  // stays in its block, which it makes NaN
    const float rest = value - bf16_to_float(bits);
    value = std::abs(rest) <= least ? rest : 0.0F;
  }
}

void SparseCodec::encode_section(const Section& section, SectionMemory& memory, std::byte* wire,
                                 const SlicePlace& place) const {
  split_outliers(section, memory, wire + section.wire_offset);
  // The other codec knows only what float32 cannot hold.
  if (kind_ != ValueKind::kFloat32) {
    const float most = largest();
    std::transform(memory.values, memory.values + section.count, memory.values, [=](float x) {
      return std::abs(x) > most ? std::numeric_limits<float>::quiet_NaN() : x;
    });
  }
  dense_->encode(memory.values, section.count, wire + section.payload_offset(),
                 place_in(place, section));
}

void SparseCodec::load_section(const void* values, const Section& section, float* to,
                               const SlicePlace& place) const {
  load_with_terms(element_kernels(), kind_, values, place.added, place.first, section.first,
                  section.count, to);
}

void SparseCodec::encode(const void* values, size_t count, std::byte* wire,
                         const SlicePlace& place) const {
  SectionMemory& memory = section_memory();
  for (size_t first = 0; first < count; first += kSectionValues) {
    const Section section = section_at(first, count, plain_.sparse);
    load_section(values, section, memory.values, place);
    encode_section(section, memory, wire, place);
  }
}

// Entries of bytes that no encoder wrote may lie outside, where they mean nothing, or stand twice.
void SparseCodec::add_entries(const Section& section, const std::byte* wire, size_t begin,
                              size_t part, float* values) const {
  const float most = largest();
  const std::byte* from = wire + section.wire_offset;
  for (size_t i = 0; i < section.outliers; ++i, from += kEntryBytes) {
    const Entry entry = read_entry(from);
    if (entry.index - begin >= part) continue;  // below `begin`, too: the difference wraps
    float* const at = values + (entry.index - begin);
    const float sum = canonical_nan(load_unaligned<float>(at) + entry.value);
    store_unaligned(at, std::abs(sum) > most ? std::copysign(most, sum) : sum);
  }
}

void SparseCodec::decode_section(const Section& section, const std::byte* wire, size_t begin,
                                 size_t part, SectionMemory& memory, void* values, size_t to,
                                 const SlicePlace& place) const {
  float* const decoded =
      kind_ == ValueKind::kFloat32 ? static_cast<float*>(values) + to : memory.values;
  dense_->decode_part(wire + section.payload_offset(), {section.count, begin, part}, decoded,
                      place_in(place, section));
  add_entries(section, wire, begin, part, decoded);
  if (kind_ == ValueKind::kFloat32) return;
  element_kernels().limit(largest(), part, decoded);
  element_kernels().store(kind_, decoded, part, values, to);
}

void SparseCodec::decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                              const SlicePlace& place) const {
  cut.check(block());
  SectionMemory& memory = section_memory();
  const size_t end = cut.begin + cut.part;
  for (size_t at = cut.begin; at < end;) {
    const size_t within = at % kSectionValues;
    const Section section = section_at(at - within, cut.count, plain_.sparse);
    const size_t values_here = std::min(section.count - within, end - at);
    decode_section(section, wire, within, values_here, memory, values, at - cut.begin, place);
    at += values_here;
  }
}

void SparseCodec::sum_section(const Section& section, std::span<const std::byte* const> wires,
                              const void* own, size_t own_index, const CombineFinish& finish,
                              SectionMemory& memory, const SlicePlace& place) const {
  const float* own_values = nullptr;
  if (own != nullptr && kind_ == ValueKind::kFloat32 && !place.added.is_any()) {
    own_values = static_cast<const float*>(own) + section.first;
  } else if (own != nullptr) {
    load_section(own, section, memory.own, place);
    own_values = memory.own;
  }
  memory.wires.resize(wires.size());
  std::transform(wires.begin(), wires.end(), memory.wires.begin(),
                 [&](const std::byte* wire) { return wire + section.payload_offset(); });
  dense_->combine(memory.wires, own_values, own_index, section.count, {}, nullptr, memory.values,
                  place_in(place, section));
  for (const std::byte* const wire : wires) {
    const std::byte* from = wire + section.wire_offset;
    for (size_t i = 0; i < section.outliers; ++i, from += kEntryBytes) {
      const Entry entry = read_entry(from);
      if (entry.index < section.count) memory.values[entry.index] += entry.value;
    }
  }
  element_kernels().finish({finish.op, finish.divisor}, section.count, memory.values);
}

void SparseCodec::combine(std::span<const std::byte* const> wires, const void* own,
                          size_t own_index, size_t count, const CombineFinish& finish,
                          std::byte* wire_out, void* values_out, const SlicePlace& place) const {
  TERSUM_CHECK(finish.op == ReduceOp::kSum || finish.op == ReduceOp::kAverage);
  static_cast<void>(
      checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out));
  SectionMemory& memory = section_memory();
  const uint32_t share_out = gathered_share(finish.gathered_ranks);
  for (size_t first = 0; first < count; first += kSectionValues) {
    const Section in = section_at(first, count, plain_.sparse);
    sum_section(in, wires, own, own_index, finish, memory, place);
    if (wire_out == nullptr) {
      element_kernels().store(kind_, memory.values, in.count, values_out, first);
      continue;
    }
    const Section out = section_at(first, count, share_out);
    encode_section(out, memory, wire_out, place);
    if (values_out == nullptr) continue;
    decode_section(out, wire_out, 0, out.count, memory, values_out, first, place);
  }
}

void SparseCodec::mark_outliers(const std::byte* wire, size_t count, size_t first,
                                OutlierPlaces& places) const {
  for (size_t at = 0; at < count; at += kSectionValues) {
    const Section section = section_at(at, count, plain_.sparse);
    const std::byte* from = wire + section.wire_offset;
    for (size_t i = 0; i < section.outliers; ++i, from += kEntryBytes) {
      const size_t index = read_entry(from).index;
      if (index < section.count) places.mark(first + at + index);
    }
  }
}

Status SparseCodec::check_entries(const Section& section, const std::byte* wire) const {
  const std::byte* from = wire + section.wire_offset;
  const float most = bf16_to_float(entry_bits(largest()));
  int64_t before = -1;
  for (size_t i = 0; i < section.outliers; ++i, from += kEntryBytes) {
    const Entry entry = read_entry(from);
    const bool is_inside = entry.index < section.count;
    const bool ascends = static_cast<int64_t>(entry.index) > before;
    if (is_inside && ascends && std::abs(entry.value) <= most) {
      before = static_cast<int64_t>(entry.index);
      continue;
    }
    const std::string where = "outlier " + std::to_string(i) + " of the section that begins at " +
                              std::to_string(section.first);
    const std::string index = " has the index " + std::to_string(entry.index);
    if (!is_inside) {
      return invalid_argument(where + index + "; the section has " + std::to_string(section.count) +
                              " values");
    }
    if (!ascends) {
      return invalid_argument(where + index + ", which does not ascend from " +
                              std::to_string(before));
    }
    return invalid_argument(where + " is no finite number");
  }
  return {};
}

Status SparseCodec::check_wire(const std::byte* wire, size_t count) const {
  for (size_t first = 0; first < count; first += kSectionValues) {
    const Section section = section_at(first, count, plain_.sparse);
    TERSUM_RETURN_IF_ERROR(check_entries(section, wire));
    TERSUM_RETURN_IF_ERROR(dense_->check_wire(wire + section.payload_offset(), section.count));
  }
  return {};
}

// What is left of a block is no larger than the block. Beside its coding there is what bf16 does
// not send of an outlier whose rest was dropped, and the rounding of the sum.
double SparseCodec::block_error_bound(double absmax) const {
  if (absmax == 0) return 0;
  const double dense = dense_->block_error_bound(absmax);
  if (!(dense < std::numeric_limits<double>::infinity())) return dense;
  const double dropped = std::max(std::ldexp(absmax, -8), std::ldexp(1.0, -134));
  const double bound = dense + dropped + std::ldexp(absmax + dense, -24);
  return bound + rounding_error(kind_, absmax + bound);
}

}  // namespace

PlainSpec gathered_spec(const PlainSpec& spec, uint32_t ranks) {
  PlainSpec gathered = spec;
  const uint64_t share = uint64_t{spec.sparse} * ranks;
  gathered.sparse = static_cast<uint16_t>(std::min<uint64_t>(share, kSparseMax));
  return gathered;
}

std::unique_ptr<Codec> make_sparse_codec(const PlainSpec& spec, std::unique_ptr<const Codec> dense,
                                         DataType type) {
  return std::make_unique<SparseCodec>(spec, std::move(dense), type);
}

}  // namespace tersum
