// What the formats without blocks share: a DenseFormat and its kernels.
#pragma once

#include <utility>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/combine_checks.h"
#include "codec/kernels/dense_kernels.h"

namespace tersum {

class DenseCodec : public Codec {
 public:
  DenseCodec(CodecSpec spec, DenseFormat format) : spec_(std::move(spec)), format_(format) {}

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return format_.type; }
  [[nodiscard]] uint32_t block() const override { return 1; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override {
    return dense_wire_bytes(format_, count);
  }
  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& /*place*/) const override {
    dense_kernels(format_).encode(format_, values, count, wire);
  }
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& /*place*/) const override {
    dense_kernels(format_).decode(format_, wire, count, values);
  }
  void decode_part(const std::byte* wire, size_t count, size_t begin, size_t part, void* values,
                   const SlicePlace& place) const override {
    TERSUM_CHECK(begin + part <= count);
    decode(wire + dense_wire_bytes(format_, begin), part, values, place);
  }
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& /*place*/) const override {
    dense_kernels(format_).combine(
        format_, checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out));
  }

 private:
  CodecSpec spec_;
  DenseFormat format_;
};

}  // namespace tersum
