// What the codecs share that choose their layout by looking at many blocks at once: slices cut into
// sections, each coded from float32 values by itself, with a layout that it describes.
//
// Thread safety: codecs are immutable; a thread's first call allocates its scratch. Sums are of
// what the sections decode to, in rank order, in float32.
#pragma once

#include "codec/codec.h"
#include "codec/format_registry.h"
#include "codec/kernels/block_format.h"

namespace tersum {

// Only the last section of a slice may be shorter.
inline constexpr size_t kLayoutValues = 65'536;

struct SectionMemory;

class SectionedCodec : public Codec {
 public:
  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return type_; }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override;

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override;
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    decode_part(wire, {count, 0, count}, values, place);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override;
  // Each part reads its section's layout anew, which takes longer than values from L2.
  [[nodiscard]] size_t part_values() const override { return kLayoutValues / 2; }
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override;
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override;

 protected:
  SectionedCodec(const PlainSpec& spec, DataType type);

  // Of a section of `count` values, which nothing but `count` decides.
  [[nodiscard]] virtual size_t section_bytes(size_t count) const = 0;
  // `place` is the section's. What is no finite number of the value type is NaN here.
  virtual void encode_section(const float* values, size_t count, std::byte* wire,
                              const SlicePlace& place) const = 0;
  // Values begin..begin+part-1 of the section, both at blocks. A layout that no encoder writes
  // gives NaN throughout.
  virtual void decode_section(const std::byte* wire, size_t count, size_t begin, size_t part,
                              float* values, const SlicePlace& place) const = 0;
  // As Codec::check_wire, of one section.
  [[nodiscard]] virtual Status check_section(const std::byte* wire, size_t count) const = 0;

  // The error of what was decoded as float32, with what limit and value type add.
  [[nodiscard]] double stored_error_bound(double absmax, double bound) const;

 private:
  void store(SectionMemory& memory, size_t count, void* values, size_t first) const;
  [[nodiscard]] bool lies_ready(const void* values, size_t count, const SlicePlace& place) const;
  void encode_loaded(SectionMemory& memory, size_t count, std::byte* wire,
                     const SlicePlace& place) const;
  // To memory.values: the sum of section `first` of the slice, divided.
  void sum_section(std::span<const std::byte* const> wires, const void* own, size_t own_index,
                   size_t first, size_t count, const CombineFinish& finish, SectionMemory& memory,
                   const SlicePlace& place) const;

  CodecSpec spec_;
  DataType type_;
  ValueKind kind_;
  float largest_;  // finite number of the value type, as float32
};

}  // namespace tersum
