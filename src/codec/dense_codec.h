// What the formats without blocks share: a DenseFormat and its kernels.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/combine_checks.h"
#include "codec/kernels/dense_kernels.h"
#include "codec/value_kind.h"

namespace tersum {

class DenseCodec : public Codec {
 public:
  DenseCodec(CodecSpec spec, DenseFormat format) : spec_(std::move(spec)), format_(format) {}

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return format_.type; }
  [[nodiscard]] uint32_t block() const override { return 1; }
  [[nodiscard]] bool takes_parts() const override { return true; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override {
    return dense_wire_bytes(format_, count);
  }
  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override {
    if (place.added.is_any()) {
      const auto encode_tile = [&](size_t at, size_t here, const std::byte* sums) {
        dense_kernels(format_).encode(format_, sums, here, wire + dense_wire_bytes(format_, at));
      };
      return with_sums(values, count, place, encode_tile);
    }
    dense_kernels(format_).encode(format_, values, count, wire);
  }
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& /*place*/) const override {
    dense_kernels(format_).decode(format_, wire, count, values);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override {
    cut.check(block());
    decode(wire + dense_wire_bytes(format_, cut.begin), cut.part, values, place);
  }
  void encode_part(const void* values, const SliceCut& cut, std::byte* wire,
                   const SlicePlace& place) const override {
    check_cut(cut, place);
    encode(values, cut.part, wire + dense_wire_bytes(format_, cut.begin), place);
  }
  void combine_part(std::span<const std::byte* const> wires, const void* own, size_t own_index,
                    const SliceCut& cut, const CombineFinish& finish, std::byte* wire_out,
                    void* values_out, const SlicePlace& place) const override {
    check_cut(cut, place);
    const size_t offset = dense_wire_bytes(format_, cut.begin);
    thread_local std::vector<const std::byte*> part_wires;
    shift(wires, offset, part_wires);
    std::byte* const part_out = wire_out == nullptr ? nullptr : wire_out + offset;
    combine(part_wires, own, own_index, cut.part, finish, part_out, values_out, place);
  }
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override {
    const CombineArgs args =
        checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out);
    if (own == nullptr || !place.added.is_any()) {
      return dense_kernels(format_).combine(format_, args);
    }
    thread_local std::vector<const std::byte*> tile_wires;
    with_sums(own, count, place, [&](size_t at, size_t here, const std::byte* sums) {
      const size_t offset = dense_wire_bytes(format_, at);
      shift(wires, offset, tile_wires);
      CombineArgs tile = args;
      tile.wires = tile_wires.data();
      tile.own = sums;
      tile.count = here;
      if (wire_out != nullptr) tile.wire_out = wire_out + offset;
      if (values_out != nullptr) {
        tile.values_out = static_cast<std::byte*>(values_out) + at * element_bytes(format_.type);
      }
      dense_kernels(format_).combine(format_, tile);
    });
  }

 private:
  static void check_cut(const SliceCut& cut, const SlicePlace& place) {
    cut.check(1);
    TERSUM_CHECK(!place.added.is_any());
  }
  static void shift(std::span<const std::byte* const> wires, size_t offset,
                    std::vector<const std::byte*>& shifted) {
    shifted.resize(wires.size());
    std::transform(wires.begin(), wires.end(), shifted.begin(),
                   [=](const std::byte* wire) { return wire + offset; });
  }
  // Calls use(at, here, sums) for runs of the slice's values with what is added to them: `here` of
  // them from number `at` on, rounded to the value type.
  template <class Use>
  void with_sums(const void* values, size_t count, const SlicePlace& place, const Use& use) const {
    constexpr size_t kTile = 1024;
    const size_t bytes = element_bytes(format_.type);
    alignas(64) std::byte sums[kTile * 8];
    const auto* const from = static_cast<const std::byte*>(values);
    for (size_t at = 0; at < count; at += kTile) {
      const size_t here = std::min(kTile, count - at);
      const size_t first = place.first + at;
      if (is_short_float(format_.type)) {
        add_terms(value_kind(format_.type), place.added, first, from + at * bytes, here, sums);
      } else {
        add_terms(format_, place.added, first, from + at * bytes, here, sums);
      }
      use(at, here, sums);
    }
  }

  CodecSpec spec_;
  DenseFormat format_;
};

}  // namespace tersum
