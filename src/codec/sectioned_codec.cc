#include "codec/sectioned_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "base/check.h"
#include "codec/combine_checks.h"
#include "codec/kernels/element_kernels.h"
#include "codec/value_kind.h"

namespace tersum {

// What a section is coded in. Tiles have the padding that kernels may touch.
struct SectionMemory {
  alignas(64) float values[kLayoutValues + kTilePad];
  alignas(64) float term[kLayoutValues + kTilePad];
};

namespace {

SectionMemory& section_memory() {
  thread_local const std::unique_ptr<SectionMemory> memory(new SectionMemory);
  return *memory;
}

// For codecs that are given what was read already.
SlicePlace place_in(const SlicePlace& slice, size_t first) {
  return {slice.first + first, slice.factors, slice.rounding, nullptr, {}};
}

}  // namespace

SectionedCodec::SectionedCodec(const PlainSpec& spec, DataType type)
    : spec_(describe_spec(spec)),
      type_(type),
      kind_(value_kind(type)),
      largest_(float_from_bits(overflow_bits_of(kind_) - 1)) {}

size_t SectionedCodec::wire_bytes(size_t count) const {
  const size_t whole = count / kLayoutValues;
  const size_t rest = count % kLayoutValues;
  return (whole > 0 ? whole * section_bytes(kLayoutValues) : 0) +
         (rest > 0 ? section_bytes(rest) : 0);
}

void SectionedCodec::encode_loaded(SectionMemory& memory, size_t count, std::byte* wire,
                                   const SlicePlace& place) const {
  // What codes the section knows only what float32 cannot hold.
  if (kind_ != ValueKind::kFloat32) {
    const float most = largest_;
    std::transform(memory.values, memory.values + count, memory.values, [=](float x) {
      return std::abs(x) > most ? std::numeric_limits<float>::quiet_NaN() : x;
    });
  }
  encode_section(memory.values, count, wire, place);
}

void SectionedCodec::encode(const void* values, size_t count, std::byte* wire,
                            const SlicePlace& place) const {
  SectionMemory& memory = section_memory();
  for (size_t first = 0; first < count; first += kLayoutValues) {
    const size_t here = std::min(kLayoutValues, count - first);
    if (lies_ready(values, here, place)) {
      encode_section(static_cast<const float*>(values) + first, here, wire, place_in(place, first));
    } else {
      load_with_terms(element_kernels(), kind_, values, place.added, place.first, first, here,
                      memory.values);
      encode_loaded(memory, here, wire, place_in(place, first));
    }
    wire += section_bytes(here);
  }
}

// True where a section can be coded from the caller's array: kernels may read behind another count.
bool SectionedCodec::lies_ready(const void* values, size_t count, const SlicePlace& place) const {
  return kind_ == ValueKind::kFloat32 && !place.added.is_any() && count % kTilePad == 0 &&
         reinterpret_cast<uintptr_t>(values) % alignof(float) == 0;
}

// The error of a code must not take a finite number beyond the value type. Little enough at a time
// to be in L1 when it is stored.
void SectionedCodec::store(SectionMemory& memory, size_t count, void* values, size_t first) const {
  constexpr size_t kAtOnce = 2048;
  for (size_t at = 0; at < count; at += kAtOnce) {
    const size_t here = std::min(kAtOnce, count - at);
    element_kernels().limit(largest_, here, memory.values + at);
    element_kernels().store(kind_, memory.values + at, here, values, first + at);
  }
}

void SectionedCodec::decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                                 const SlicePlace& place) const {
  cut.check(block());
  SectionMemory& memory = section_memory();
  const size_t end = cut.begin + cut.part;
  for (size_t at = cut.begin; at < end;) {
    const size_t within = at % kLayoutValues;
    const size_t first = at - within;
    const size_t here = std::min(kLayoutValues, cut.count - first);
    const size_t taken = std::min(here - within, end - at);
    const std::byte* const from =
        wire + (first > 0 ? first / kLayoutValues * section_bytes(kLayoutValues) : 0);
    decode_section(from, here, within, taken, memory.values, place_in(place, first));
    store(memory, taken, values, at - cut.begin);
    at += taken;
  }
}

Status SectionedCodec::check_wire(const std::byte* wire, size_t count) const {
  for (size_t first = 0; first < count; first += kLayoutValues) {
    const size_t here = std::min(kLayoutValues, count - first);
    const Status section = check_section(wire, here);
    if (!section.ok()) {
      return invalid_argument("section " + std::to_string(first / kLayoutValues) +
                              " of the slice: " + std::string(section.message()));
    }
    wire += section_bytes(here);
  }
  return {};
}

void SectionedCodec::sum_section(std::span<const std::byte* const> wires, const void* own,
                                 size_t own_index, size_t first, size_t count,
                                 const CombineFinish& finish, SectionMemory& memory,
                                 const SlicePlace& place) const {
  const SlicePlace section = place_in(place, first);
  const size_t terms = wires.size() + (own == nullptr ? 0 : 1);
  const size_t offset = first > 0 ? first / kLayoutValues * section_bytes(kLayoutValues) : 0;
  size_t wire = 0;
  for (size_t i = 0; i < terms; ++i) {
    float* const to = i == 0 ? memory.values : memory.term;
    if (own != nullptr && i == own_index) {
      load_with_terms(element_kernels(), kind_, own, place.added, place.first, first, count, to);
    } else {
      decode_section(wires[wire++] + offset, count, 0, count, to, section);
    }
    if (i > 0) element_kernels().add(memory.term, count, memory.values);
  }
  element_kernels().finish({finish.op, finish.divisor}, count, memory.values);
}

void SectionedCodec::combine(std::span<const std::byte* const> wires, const void* own,
                             size_t own_index, size_t count, const CombineFinish& finish,
                             std::byte* wire_out, void* values_out, const SlicePlace& place) const {
  TERSUM_CHECK(finish.op == ReduceOp::kSum || finish.op == ReduceOp::kAverage);
  static_cast<void>(
      checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out));
  SectionMemory& memory = section_memory();
  for (size_t first = 0; first < count; first += kLayoutValues) {
    const size_t here = std::min(kLayoutValues, count - first);
    const SlicePlace section = place_in(place, first);
    sum_section(wires, own, own_index, first, here, finish, memory, place);
    if (wire_out == nullptr) {
      element_kernels().store(kind_, memory.values, here, values_out, first);
      continue;
    }
    encode_loaded(memory, here, wire_out, section);
    if (values_out != nullptr) {
      decode_section(wire_out, here, 0, here, memory.values, section);
      store(memory, here, values_out, first);
    }
    wire_out += section_bytes(here);
  }
}

double SectionedCodec::stored_error_bound(double absmax, double bound) const {
  return bound + rounding_error(kind_, absmax + bound);
}

}  // namespace tersum
