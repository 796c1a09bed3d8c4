// Codes, one a byte, from and to their places on the wire.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_PACKING_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_PACKING_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_PACKING_INL_H_
#endif

#include <cstring>

#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// 32 codes in one vector or in two.
using DPlane = hn::CappedTag<uint8_t, kPlaneGroup>;
using VPlane = hn::Vec<DPlane>;
inline constexpr size_t kPlaneLanes = hn::MaxLanes(DPlane());
inline constexpr size_t kPlaneVectors = kPlaneGroup / kPlaneLanes;
inline constexpr size_t kPlaneBytes = kPlaneGroup / 8;
// What Highway may read or write of a mask.
inline constexpr size_t kMaskMemory = 8;

HWY_INLINE void store_planes(const VPlane (&codes)[kPlaneVectors], size_t bits,
                             std::byte* HWY_RESTRICT wire) {
  const DPlane d;
  for (size_t bit = 0; bit < bits; ++bit) {
    const auto one = hn::Set(d, static_cast<uint8_t>(1U << bit));
    for (size_t v = 0; v < kPlaneVectors; ++v) {
      uint8_t mask[kMaskMemory];
      hn::StoreMaskBits(d, hn::TestBit(codes[v], one), mask);
      std::memcpy(wire + bit * kPlaneBytes + v * kPlaneLanes / 8, mask, kPlaneLanes / 8);
    }
  }
}

// In each run of 8 bytes, bit i of byte k and bit k of byte i exchanged.
HWY_INLINE VPlane transpose_bits(VPlane v) {
  const hn::Repartition<uint64_t, DPlane> dq;
  auto x = hn::BitCast(dq, v);
  const auto exchange = [&x, dq](auto shifted, uint64_t mask) {
    return hn::And(hn::Xor(x, shifted), hn::Set(dq, mask));
  };
  auto t = exchange(hn::ShiftRight<7>(x), 0x00aa00aa00aa00aaULL);
  x = hn::Xor(hn::Xor(x, t), hn::ShiftLeft<7>(t));
  t = exchange(hn::ShiftRight<14>(x), 0x0000cccc0000ccccULL);
  x = hn::Xor(hn::Xor(x, t), hn::ShiftLeft<14>(t));
  t = exchange(hn::ShiftRight<28>(x), 0x00000000f0f0f0f0ULL);
  x = hn::Xor(hn::Xor(x, t), hn::ShiftLeft<28>(t));
  return hn::BitCast(DPlane(), x);
}

// Codes of a group from its planes: the bytes that hold bits of the same 8 codes side by side,
// plane after plane, then transposed.
class PlaneLoader {
 public:
  explicit PlaneLoader(size_t bits) : bytes_(bits * kPlaneBytes) {
    for (size_t i = 0; i < kPlaneGroup; ++i) {
      const size_t from = i % 8 * kPlaneBytes + i / 8;
      const bool is_there = i % 8 < bits;
      low_[i] = is_there && from < kHalf ? static_cast<uint8_t>(from) : kNone;
      high_[i] = is_there && from >= kHalf ? static_cast<uint8_t>(from - kHalf) : kNone;
    }
  }

  // Group `group` of `groups` at `wire`. Two halves are read; behind the last groups, which are
  // shorter, there may be nothing.
  HWY_INLINE void load(const std::byte* HWY_RESTRICT wire, size_t group, size_t groups,
                       VPlane (&codes)[kPlaneVectors]) const {
    const std::byte* const from = wire + group * bytes_;
    if (HWY_LIKELY((groups - group) * bytes_ >= 2 * kHalf)) return load_whole(from, codes);
    std::byte copy[2 * kHalf] = {};
    std::memcpy(copy, from, bytes_);
    load_whole(copy, codes);
  }

 private:
  static constexpr size_t kHalf = 16;
  static constexpr uint8_t kNone = 0x80;  // looks up 0

  HWY_INLINE void load_whole(const std::byte* from, VPlane (&codes)[kPlaneVectors]) const {
    const DPlane d;
    const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
    const auto low = hn::LoadDup128(d, bytes);
    const auto high = hn::LoadDup128(d, bytes + kHalf);
    for (size_t v = 0; v < kPlaneVectors; ++v) {
      const auto first = hn::TableLookupBytesOr0(low, hn::Load(d, low_ + v * kPlaneLanes));
      const auto second = hn::TableLookupBytesOr0(high, hn::Load(d, high_ + v * kPlaneLanes));
      codes[v] = transpose_bits(hn::Or(first, second));
    }
  }

  size_t bytes_;
  alignas(kPlaneGroup) uint8_t low_[kPlaneGroup];
  alignas(kPlaneGroup) uint8_t high_[kPlaneGroup];
};

HWY_NOINLINE void pack_planes(size_t bits, const uint8_t* HWY_RESTRICT codes, size_t groups,
                              std::byte* HWY_RESTRICT wire) {
  for (size_t g = 0; g < groups; ++g) {
    VPlane group[kPlaneVectors];
    for (size_t v = 0; v < kPlaneVectors; ++v) {
      group[v] = hn::LoadU(DPlane(), codes + g * kPlaneGroup + v * kPlaneLanes);
    }
    store_planes(group, bits, wire + g * bits * kPlaneBytes);
  }
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// A plane is a mask.
inline constexpr size_t kMaskPlanesMax = 8;
// `codes` with the bit `one` where the plane has it.
HWY_INLINE VPlane with_plane(VPlane codes, const std::byte* HWY_RESTRICT plane, uint8_t one) {
  const auto mask = load_unaligned<uint32_t>(plane);
  return VPlane{_mm256_mask_add_epi8(codes.raw, mask, codes.raw, hn::Set(DPlane(), one).raw)};
}
#else
inline constexpr size_t kMaskPlanesMax = 3;
HWY_INLINE VPlane with_plane(VPlane codes, const std::byte* HWY_RESTRICT plane, uint8_t one) {
  const DPlane d;
  uint8_t bits[kMaskMemory] = {};
  std::memcpy(bits, plane, kPlaneLanes / 8);
  return hn::Or(codes, hn::IfThenElseZero(hn::LoadMaskBits(d, bits), hn::Set(d, one)));
}
#endif

// As PlaneLoader, plane by plane, where making masks of planes is cheap, or the planes are few.
template <size_t kBits>
class MaskLoader {
 public:
  static HWY_INLINE void load(const std::byte* HWY_RESTRICT wire, size_t group, size_t,
                              VPlane (&codes)[kPlaneVectors]) {
    const std::byte* const from = wire + group * kBits * kPlaneBytes;
    for (size_t v = 0; v < kPlaneVectors; ++v) {
      codes[v] = hn::Zero(DPlane());
      for (size_t bit = 0; bit < kBits; ++bit) {
        const std::byte* const plane = from + bit * kPlaneBytes + v * kPlaneLanes / 8;
        codes[v] = with_plane(codes[v], plane, static_cast<uint8_t>(1U << bit));
      }
    }
  }
};

template <size_t kBits>
HWY_INLINE auto plane_loader() {
  if constexpr (kBits <= kMaskPlanesMax) {
    return MaskLoader<kBits>();
  } else {
    return PlaneLoader(kBits);
  }
}

template <size_t kBits>
HWY_NOINLINE void unpack_bits(const std::byte* HWY_RESTRICT wire, size_t groups,
                              uint8_t* HWY_RESTRICT codes) {
  const auto planes = plane_loader<kBits>();
  for (size_t g = 0; g < groups; ++g) {
    VPlane group[kPlaneVectors];
    planes.load(wire, g, groups, group);
    for (size_t v = 0; v < kPlaneVectors; ++v) {
      hn::StoreU(group[v], DPlane(), codes + g * kPlaneGroup + v * kPlaneLanes);
    }
  }
}

HWY_INLINE void unpack_planes(size_t bits, const std::byte* wire, size_t groups, uint8_t* codes) {
  switch (bits) {
    case 1:
      return unpack_bits<1>(wire, groups, codes);
    case 2:
      return unpack_bits<2>(wire, groups, codes);
    case 3:
      return unpack_bits<3>(wire, groups, codes);
    case 4:
      return unpack_bits<4>(wire, groups, codes);
    case 5:
      return unpack_bits<5>(wire, groups, codes);
    case 6:
      return unpack_bits<6>(wire, groups, codes);
    case 7:
      return unpack_bits<7>(wire, groups, codes);
    default:
      return unpack_bits<8>(wire, groups, codes);
  }
}

HWY_NOINLINE void pack_nibbles(const uint8_t* HWY_RESTRICT codes, size_t groups,
                               std::byte* HWY_RESTRICT wire) {
  const hn::CappedTag<uint8_t, kNibbleGroupBytes> d;
  const hn::Repartition<uint16_t, decltype(d)> dw;
  for (size_t g = 0; g < groups; ++g) {
    const auto low = hn::LoadU(d, codes + g * kNibbleGroup);
    const auto high = hn::LoadU(d, codes + g * kNibbleGroup + kNibbleGroupBytes);
    const auto shifted = hn::BitCast(d, hn::ShiftLeft<4>(hn::BitCast(dw, high)));
    const auto mask = hn::Set(d, 0x0f);
    const auto both = hn::Or(hn::And(low, mask), hn::AndNot(mask, shifted));
    hn::StoreU(both, d, reinterpret_cast<uint8_t*>(wire) + g * kNibbleGroupBytes);
  }
}

// 16 bytes twice, or as many as a vector has, shifted by `shifts`: the low nibbles, then the high
// ones.
HWY_NOINLINE void unpack_nibbles(const std::byte* HWY_RESTRICT wire, size_t groups,
                                 uint8_t* HWY_RESTRICT codes) {
  const DPlane d;
  const hn::Repartition<uint32_t, DPlane> dw;
  alignas(kPlaneGroup) uint8_t shift_bytes[kPlaneGroup] = {};
  // Of 32-bit lanes. What comes from other bytes is masked away.
  for (size_t i = kNibbleGroupBytes; i < kPlaneGroup; i += 4) shift_bytes[i] = 4;
  const auto mask = hn::Set(d, 0x0f);
  for (size_t g = 0; g < groups; ++g) {
    const auto* const from = reinterpret_cast<const uint8_t*>(wire) + g * kNibbleGroupBytes;
    const auto both = hn::BitCast(dw, hn::LoadDup128(d, from));
    for (size_t v = 0; v < kPlaneVectors; ++v) {
      const auto shifts = hn::BitCast(dw, hn::Load(d, shift_bytes + v * kPlaneLanes));
      const auto nibbles = hn::BitCast(d, both >> shifts);
      hn::StoreU(hn::And(nibbles, mask), d, codes + g * kNibbleGroup + v * kPlaneLanes);
    }
  }
}

HWY_INLINE VPlane five_times(VPlane v) {
  const auto twice = hn::Add(v, v);
  return hn::Add(v, hn::Add(twice, twice));
}

HWY_NOINLINE void pack_triples(const uint8_t* HWY_RESTRICT codes, size_t groups,
                               std::byte* HWY_RESTRICT wire) {
  const DPlane d;
  for (size_t g = 0; g < groups; ++g) {
    VPlane triples[kPlaneVectors];
    for (size_t v = 0; v < kPlaneVectors; ++v) {
      const uint8_t* const from = codes + g * kTripleGroup + v * kPlaneLanes;
      const auto upper = hn::Add(hn::LoadU(d, from + kPlaneGroup),
                                 five_times(hn::LoadU(d, from + 2 * kPlaneGroup)));
      triples[v] = hn::Add(hn::LoadU(d, from), five_times(upper));
    }
    store_planes(triples, kTripleBits, wire + g * kTripleBits * kPlaneBytes);
  }
}

// value / step, for values below 5 * step: of the cells of 2^kCellLog2 values each, 16 at most,
// each begins within one quotient and reaches the next one, if at all, once.
template <uint32_t kStep, int kCellLog2>
HWY_INLINE VPlane quotient(VPlane value) {
  const DPlane d;
  const hn::Repartition<uint16_t, DPlane> dw;
  alignas(16) uint8_t quotient_of[16];
  alignas(16) uint8_t next_of[16];
  for (uint32_t cell = 0; cell < 16; ++cell) {
    quotient_of[cell] = static_cast<uint8_t>((cell << kCellLog2) / kStep);
    next_of[cell] = static_cast<uint8_t>((quotient_of[cell] + 1) * kStep);
  }
  const auto shifted = hn::BitCast(d, hn::ShiftRight<kCellLog2>(hn::BitCast(dw, value)));
  const auto cell = hn::And(shifted, hn::Set(d, 15));
  const auto first = hn::TableLookupBytes(hn::LoadDup128(d, quotient_of), cell);
  const auto next = hn::TableLookupBytes(hn::LoadDup128(d, next_of), cell);
  const auto reached = hn::Eq(hn::Max(value, next), value);
  return hn::Add(first, hn::IfThenElseZero(reached, hn::Set(d, 1)));
}

HWY_NOINLINE void unpack_triples(const std::byte* HWY_RESTRICT wire, size_t groups,
                                 uint8_t* HWY_RESTRICT codes) {
  const DPlane d;
  const auto planes = plane_loader<kTripleBits>();
  for (size_t g = 0; g < groups; ++g) {
    VPlane triples[kPlaneVectors];
    planes.load(wire, g, groups, triples);
    for (size_t v = 0; v < kPlaneVectors; ++v) {
      const auto unknown = hn::Eq(hn::Max(triples[v], hn::Set(d, 125)), triples[v]);
      const auto none = hn::Set(d, kNoTriple);
      const auto third = quotient<25, 3>(triples[v]);
      const auto rest = hn::Sub(triples[v], five_times(five_times(third)));
      const auto second = quotient<5, 1>(rest);
      const auto first = hn::Sub(rest, five_times(second));
      uint8_t* const to = codes + g * kTripleGroup + v * kPlaneLanes;
      hn::StoreU(hn::IfThenElse(unknown, none, first), d, to);
      hn::StoreU(hn::IfThenElse(unknown, none, second), d, to + kPlaneGroup);
      hn::StoreU(hn::IfThenElse(unknown, none, third), d, to + 2 * kPlaneGroup);
    }
  }
}

void pack_codes(const ElementFormat& format, const uint8_t* codes, size_t groups, std::byte* wire) {
  switch (format.packing) {
    case Packing::kBytes:
      std::memcpy(wire, codes, groups * kPlaneGroup);
      return;
    case Packing::kNibbles:
      return pack_nibbles(codes, groups, wire);
    case Packing::kPlanes:
      return pack_planes(format.bits, codes, groups, wire);
    case Packing::kTriples:
      return pack_triples(codes, groups, wire);
  }
}

void unpack_codes(const ElementFormat& format, const std::byte* wire, size_t groups,
                  uint8_t* codes) {
  switch (format.packing) {
    case Packing::kBytes:
      std::memcpy(codes, wire, groups * kPlaneGroup);
      return;
    case Packing::kNibbles:
      return unpack_nibbles(wire, groups, codes);
    case Packing::kPlanes:
      return unpack_planes(format.bits, wire, groups, codes);
    case Packing::kTriples:
      return unpack_triples(wire, groups, codes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_PACKING_INL_H_
