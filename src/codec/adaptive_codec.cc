#include "codec/adaptive_codec.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/check.h"
#include "codec/kernels/block_cuts.h"
#include "codec/kernels/cell_coding.h"
#include "codec/kernels/element_kernels.h"
#include "codec/sectioned_codec.h"

namespace tersum {
namespace {

using CodecsBySize = std::array<std::unique_ptr<const Codec>, kAdaptiveSizes>;

static_assert(kLayoutValues == kCellsMax * kCell && kLayoutValues % kAdaptiveMost == 0);
static_assert(kAdaptiveLeast == kCell && kAdaptiveMost == kCell * kCellsInBlockMax);

struct AdaptiveMemory {
  uint32_t absmax_bits[kCellsMax];
  uint8_t cells[kCellsMax];
  CutScratch cuts;
};

AdaptiveMemory& adaptive_memory() {
  thread_local const std::unique_ptr<AdaptiveMemory> memory(new AdaptiveMemory);
  return *memory;
}

class AdaptiveCodec final : public SectionedCodec {
 public:
  AdaptiveCodec(const PlainSpec& spec, CodecsBySize by_size, DataType type)
      : SectionedCodec(spec, type), block_(spec.block), codecs_(std::move(by_size)) {
    TERSUM_CHECK(codecs_[0]->element_format() != nullptr);
    format_ = *codecs_[0]->element_format();
    for (size_t i = 0; i < codecs_.size(); ++i) {
      TERSUM_CHECK(codecs_[i]->value_type() == DataType::kFloat32);
      TERSUM_CHECK(codecs_[i]->block() == kAdaptiveLeast << i);
      // What a block costs beside its codes is the same whatever its size.
      TERSUM_CHECK(codecs_[i]->wire_bytes(size_t{kAdaptiveLeast} << i) - scale_bytes() ==
                   code_bytes(kAdaptiveLeast) << i);
    }
  }

  [[nodiscard]] uint32_t block() const override { return kAdaptiveMost; }
  [[nodiscard]] double block_error_bound(double absmax) const override {
    if (absmax == 0) return 0;
    return stored_error_bound(absmax, codecs_[0]->block_error_bound(absmax));
  }

 protected:
  [[nodiscard]] size_t section_bytes(size_t count) const override {
    const size_t blocks = blocks_of(count);
    return cut_bytes(blocks) + blocks * scale_bytes() + count / kCell * code_bytes(kAdaptiveLeast) +
           code_bytes(count % kCell);
  }
  void encode_section(const float* values, size_t count, std::byte* wire,
                      const SlicePlace& place) const override;
  void decode_section(const std::byte* wire, size_t count, size_t begin, size_t part, float* values,
                      const SlicePlace& place) const override;
  [[nodiscard]] Status check_section(const std::byte* wire, size_t count) const override;

 private:
  static constexpr size_t scale_bytes() { return 2; }
  [[nodiscard]] size_t code_bytes(size_t count) const {
    return count == 0 ? 0 : codecs_[0]->wire_bytes(count) - scale_bytes();
  }
  static size_t cut_bytes(size_t blocks) { return (blocks + 3) / 4; }
  [[nodiscard]] size_t blocks_of(size_t count) const {
    return std::max((count + block_ - 1) / block_, fewest_blocks(count));
  }
  [[nodiscard]] const Codec& codec_of(size_t cells) const {
    return *codecs_[static_cast<size_t>(std::countr_zero(cells))];
  }

  uint32_t block_;
  CodecsBySize codecs_;
  ElementFormat format_;  // in blocks of a cell
};

void AdaptiveCodec::encode_section(const float* values, size_t count, std::byte* wire,
                                   const SlicePlace& /*place*/) const {
  AdaptiveMemory& memory = adaptive_memory();
  const size_t whole = count / kCell;
  element_kernels().maxima(values, kCell, whole, memory.absmax_bits);
  uint32_t last = 0;
  for (size_t i = whole * kCell; i < count; ++i) {
    last = std::max(last, float_bits(values[i]) & ~kFloatSignBit);
  }
  if (whole * kCell < count) memory.absmax_bits[whole] = last;
  const size_t blocks = blocks_of(count);
  choose_cuts(memory.absmax_bits, count, blocks, memory.cuts, memory.cells);
  write_cuts(memory.cells, count, blocks, wire);
  wire += cut_bytes(blocks);
  wire = encode_cells(format_, element_kernels(), {memory.cells, 0, whole}, values,
                      memory.absmax_bits, wire);
  if (whole * kCell < count) {
    codecs_[0]->encode(values + whole * kCell, count - whole * kCell, wire);
  }
}

// Parts begin at multiples of the largest block, where a block begins however the section is cut.
void AdaptiveCodec::decode_section(const std::byte* wire, size_t count, size_t begin, size_t part,
                                   float* values, const SlicePlace& /*place*/) const {
  AdaptiveMemory& memory = adaptive_memory();
  const size_t blocks = blocks_of(count);
  if (!read_cuts(wire, count, blocks, memory.cells)) {
    std::fill_n(values, part, float_from_bits(kFloatNan));
    return;
  }
  wire += cut_bytes(blocks);
  const CellRange range{memory.cells, begin / kCell, part / kCell};
  decode_cells(format_, element_kernels(), range, wire, values);
  const size_t done = range.count * kCell;
  if (done == part) return;
  wire += cell_bytes(format_, {memory.cells, 0, range.first + range.count});
  codecs_[0]->decode(wire, part - done, values + done);
}

Status AdaptiveCodec::check_section(const std::byte* wire, size_t count) const {
  AdaptiveMemory& memory = adaptive_memory();
  const size_t blocks = blocks_of(count);
  if (!read_cuts(wire, count, blocks, memory.cells)) {
    return invalid_argument("its cuts do not make " + std::to_string(blocks) + " blocks");
  }
  wire += cut_bytes(blocks);
  size_t block = 0;
  for (size_t at = 0; at < count; ++block) {
    const size_t cells = memory.cells[at / kCell];
    const size_t here = std::min(cells * kCell, count - at);
    const Status checked = codec_of(cells).check_wire(wire, here);
    if (!checked.ok()) {
      return invalid_argument("block " + std::to_string(block) +
                              " as a slice of its own: " + std::string(checked.message()));
    }
    wire += codec_of(cells).wire_bytes(here);
    at += here;
  }
  return {};
}

}  // namespace

std::unique_ptr<Codec> make_adaptive_codec(const PlainSpec& spec, CodecsBySize by_size,
                                           DataType type) {
  return std::make_unique<AdaptiveCodec>(spec, std::move(by_size), type);
}

}  // namespace tersum
