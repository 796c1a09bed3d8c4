#include "codec/adaptive_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"
#include "codec/element_checks.h"
#include "codec/kernels/block_cuts.h"
#include "codec/kernels/cell_coding.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/relative_scales.h"
#include "codec/sectioned_codec.h"

namespace tersum {
namespace {

static_assert(kLayoutValues == kCellsMax * kCell && kLayoutValues % kAdaptiveMost == 0);
static_assert(kAdaptiveLeast == kCell && kAdaptiveMost == kCell * kCellsInBlockMax);

// A block of the spec would take 16 bits for its scale, and 2 are allowed it for cuts.
constexpr size_t kBudgetBits = 18;
// What a block takes here, and what 1,024 values take whatever their blocks.
constexpr size_t kBlockBits = 8 + 2;
constexpr size_t kExponentBits = 8;

struct AdaptiveMemory {
  uint32_t absmax_bits[kCellsMax];
  uint8_t cells[kCellsMax];
  CutScratch cuts;
};

AdaptiveMemory& adaptive_memory() {
  thread_local const std::unique_ptr<AdaptiveMemory> memory(new AdaptiveMemory);
  return *memory;
}

constexpr size_t groups_of(size_t count) { return (count + kAdaptiveMost - 1) / kAdaptiveMost; }

class AdaptiveCodec final : public SectionedCodec {
 public:
  AdaptiveCodec(const PlainSpec& spec, const ElementFormat& smallest, DataType type)
      : SectionedCodec(spec, type), block_(spec.block), format_(smallest) {
    TERSUM_CHECK(format_.block == kCell && format_.kind == ValueKind::kFloat32);
    // Codes of cells lie side by side.
    TERSUM_CHECK(format_.granule == kCell && tensor_scale_bytes(format_.rule) == 0);
  }

  [[nodiscard]] uint32_t block() const override { return kAdaptiveMost; }
  [[nodiscard]] double block_error_bound(double absmax) const override;

 protected:
  [[nodiscard]] size_t section_bytes(size_t count) const override {
    return codes_offset_of(count) + code_bytes(format_, count);
  }
  void encode_section(const float* values, size_t count, std::byte* wire,
                      const SlicePlace& place) const override;
  void decode_section(const std::byte* wire, size_t count, size_t begin, size_t part, float* values,
                      const SlicePlace& place) const override;
  [[nodiscard]] Status check_section(const std::byte* wire, size_t count) const override;

 private:
  static size_t cut_bytes(size_t blocks) { return (blocks + 3) / 4; }
  [[nodiscard]] size_t blocks_of(size_t count) const {
    const size_t spared = kBudgetBits * ((count + block_ - 1) / block_);
    const size_t affordable = (spared - kExponentBits * groups_of(count)) / kBlockBits;
    return std::clamp(affordable, fewest_blocks(count), (count + kCell - 1) / kCell);
  }
  [[nodiscard]] size_t steps_offset_of(size_t count) const {
    return groups_of(count) + cut_bytes(blocks_of(count));
  }
  [[nodiscard]] size_t codes_offset_of(size_t count) const {
    return steps_offset_of(count) + blocks_of(count);
  }
  template <class Byte>
  [[nodiscard]] CellWire<Byte> parts_of(Byte* wire, size_t count) const {
    return {wire, wire + steps_offset_of(count), wire + codes_offset_of(count)};
  }
  // To memory.cells; false for what no encoder writes.
  [[nodiscard]] bool read_blocks(const std::byte* wire, size_t count,
                                 AdaptiveMemory& memory) const {
    return read_cuts(wire + groups_of(count), count, blocks_of(count), memory.cells);
  }

  uint32_t block_;
  ElementFormat format_;  // in blocks of a cell
};

void AdaptiveCodec::encode_section(const float* values, size_t count, std::byte* wire,
                                   const SlicePlace& /*place*/) const {
  AdaptiveMemory& memory = adaptive_memory();
  const size_t whole = count / kCell;
  const size_t cells = (count + kCell - 1) / kCell;
  element_kernels().maxima(values, kCell, whole, memory.absmax_bits);
  uint32_t last = 0;
  for (size_t i = whole * kCell; i < count; ++i) {
    last = std::max(last, float_bits(values[i]) & ~kFloatSignBit);
  }
  if (whole < cells) memory.absmax_bits[whole] = last;
  const size_t blocks = blocks_of(count);
  choose_cuts(memory.absmax_bits, count, blocks, memory.cuts, memory.cells);
  write_cuts(memory.cells, count, blocks, wire + groups_of(count));
  encode_cells(format_, element_kernels(), {memory.cells, 0, cells, count}, values,
               memory.absmax_bits, parts_of(wire, count));
}

// Parts begin at multiples of the largest block, where a block begins however the section is cut.
void AdaptiveCodec::decode_section(const std::byte* wire, size_t count, size_t begin, size_t part,
                                   float* values, const SlicePlace& /*place*/) const {
  AdaptiveMemory& memory = adaptive_memory();
  if (!read_blocks(wire, count, memory)) {
    std::fill_n(values, part, float_from_bits(kFloatNan));
    return;
  }
  const CellRange range{memory.cells, begin / kCell, (part + kCell - 1) / kCell, part};
  decode_cells(format_, element_kernels(), range, parts_of(wire, count), values);
}

Status AdaptiveCodec::check_section(const std::byte* wire, size_t count) const {
  AdaptiveMemory& memory = adaptive_memory();
  if (!read_blocks(wire, count, memory)) {
    return invalid_argument("its cuts do not make " + std::to_string(blocks_of(count)) + " blocks");
  }
  const CellWire<const std::byte> parts = parts_of(wire, count);
  // A block as a slice of its own, its scale before its codes.
  std::array<std::byte, kScaleBytes + size_t{kAdaptiveMost}> slice{};
  ElementFormat format = format_;
  size_t block = 0;
  for (size_t at = 0; at < count; at += format.block, ++block) {
    format.block = static_cast<uint32_t>(memory.cells[at / kCell] * kCell);
    const size_t here = std::min<size_t>(format.block, count - at);
    const std::byte exponent = parts.exponents[at / kAdaptiveMost];
    if (!is_written_step(exponent, parts.steps[block])) {
      return invalid_argument("the scale of block " + std::to_string(block) +
                              " is not above 0, or infinite");
    }
    store_unaligned(slice.data(), read_step(exponent, parts.steps[block]));
    std::memcpy(slice.data() + kScaleBytes, parts.codes + code_bytes(format_, at),
                code_bytes(format_, here));
    const Status checked = check_elements(format, slice.data(), here);
    if (checked.ok()) continue;
    return invalid_argument("block " + std::to_string(block) +
                            " as a slice of its own: " + std::string(checked.message()));
  }
  return {};
}

// Beside the error of the format's own scale: a scale may be larger, by up to a step, and values
// that are beyond the levels of one that is smaller come back short of them.
double AdaptiveCodec::block_error_bound(double absmax) const {
  if (absmax == 0) return 0;
  auto above = static_cast<float>(absmax);
  if (double{above} < absmax) {
    above = std::nextafter(above, std::numeric_limits<float>::infinity());
  }
  std::array<std::byte, kScaleBytes> wire{};
  const double scale = choose_scale(format_, float_bits(above), 0, wire.data());
  if (!std::isfinite(scale)) return std::numeric_limits<double>::infinity();
  const PatternRange range =
      rounded_range(scale_grid(format_), load_unaligned<uint16_t>(wire.data()));
  const double most = scale_of_pattern(range.most);
  const double least = scale_of_pattern(range.least);
  const double reach = format_.level_max * most;
  const double lost = std::max(0.0, absmax - format_.level_max * scale) +
                      format_.level_max * (scale - std::min(scale, least));
  const double inside = most * std::max<double>(format_.gap_max / 2, format_.edge_max);
  return stored_error_bound(
      absmax, std::max(inside, lost + most * format_.edge_max) + std::ldexp(3 * reach, -24));
}

}  // namespace

std::unique_ptr<Codec> make_adaptive_codec(const PlainSpec& spec, const ElementFormat& smallest,
                                           DataType type) {
  return std::make_unique<AdaptiveCodec>(spec, smallest, type);
}

}  // namespace tersum
