#include "codec/kernels/exponent_codes.h"

#include <algorithm>

#include "codec/kernels/dispatch.h"
#include "codec/kernels/numbers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/exponent_codes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/rounding_numbers-inl.h"
#include "hwy/highway.h"

#ifndef TERSUM_EXPONENT_CODES_TABLE_
#define TERSUM_EXPONENT_CODES_TABLE_
namespace tersum {
inline constexpr int kMantissaBits = 23;
// The least power is 2^(headroom + 1 - 127).
inline float to_least_power(uint32_t headroom) {
  return float_from_bits((253 - headroom) << kMantissaBits);
}
void encode_exponents_scalar(const float* values, size_t count, uint32_t headroom,
                             const RoundingPlace& place, uint8_t* codes);
void add_exponents_scalar(uint8_t* a, const uint8_t* b, size_t count, const RoundingPlace& place);
}  // namespace tersum
#endif

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
const ExponentKernels* exponent_table() { return nullptr; }
#else
using DCode = hn::Rebind<uint8_t, DI>;

// As the scalar code below, lane by lane.
void encode_exponent_vectors(const float* values, size_t count, uint32_t headroom,
                             const RoundingPlace& place, uint8_t* codes) {
  const DF df;
  const DU du;
  const DI di;
  const RoundingNumbers numbers(place);
  const auto to_least = hn::Set(df, to_least_power(headroom));
  const auto room = hn::Set(di, static_cast<int32_t>(headroom));
  const auto one = hn::Set(di, 1);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto random = numbers.bits(i);
    const auto bits = hn::BitCast(du, hn::LoadU(df, values + i));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffU));
    const auto carry = hn::ShiftRight<32 - kMantissaBits>(random);
    const auto carried = hn::ShiftRight<kMantissaBits>(hn::Add(magnitude, carry));
    const auto share_of_least = hn::Mul(hn::BitCast(df, magnitude), to_least);
    const auto is_least =
        hn::RebindMask(di, hn::Lt(RoundingNumbers::share(random), share_of_least));
    const auto whole = hn::BitCast(di, hn::ShiftRight<kMantissaBits>(magnitude));
    const auto exponent =
        hn::IfThenElse(hn::Gt(whole, room), hn::Sub(hn::BitCast(di, carried), room),
                       hn::IfThenElseZero(is_least, one));
    // Bit 31 to bit 7.
    const auto sign = hn::And(hn::BitCast(di, hn::ShiftRight<24>(bits)), hn::Set(di, 0x80));
    const auto is_zero = hn::Eq(exponent, hn::Zero(di));
    const auto code = hn::Or(exponent, hn::IfThenZeroElse(is_zero, sign));
    hn::StoreU(hn::DemoteTo(DCode(), code), DCode(), codes + i);
  }
  RoundingPlace rest = place;
  rest.first += i;
  encode_exponents_scalar(values + i, count - i, headroom, rest, codes + i);
}

// Whether the upper `halvings` bits of `random` are 0, 0 of them always.
HWY_INLINE hn::Mask<DI> moves_up(VI halvings, VU random) {
  const DI di;
  const DU du;
  const auto kept = hn::Sub(hn::Set(di, 32), halvings);
  const auto by = hn::Max(hn::Min(kept, hn::Set(di, 31)), hn::Set(di, 1));
  const auto above = hn::BitCast(di, random >> hn::BitCast(du, by));
  const auto upper_is_zero = hn::And(hn::Eq(above, hn::Zero(di)), hn::Gt(kept, hn::Zero(di)));
  const auto all_is_zero =
      hn::And(hn::Eq(hn::BitCast(di, random), hn::Zero(di)), hn::Eq(kept, hn::Zero(di)));
  return hn::Or(hn::Or(upper_is_zero, all_is_zero), hn::Eq(halvings, hn::Zero(di)));
}

void add_exponent_vectors(uint8_t* a, const uint8_t* b, size_t count, const RoundingPlace& place) {
  const DI di;
  const RoundingNumbers numbers(place);
  const auto most = hn::Set(di, static_cast<int32_t>(kExponentMax));
  const auto sign_bit = hn::Set(di, static_cast<int32_t>(kExponentSign));
  const auto one = hn::Set(di, 1);
  const auto zero = hn::Zero(di);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto first = hn::PromoteTo(di, hn::LoadU(DCode(), a + i));
    const auto second = hn::PromoteTo(di, hn::LoadU(DCode(), b + i));
    const auto first_exponent = hn::And(first, most);
    const auto second_exponent = hn::And(second, most);
    const auto lead = hn::Max(first_exponent, second_exponent);
    const auto other = hn::Min(first_exponent, second_exponent);
    const auto second_leads = hn::Gt(second_exponent, first_exponent);
    const auto sign = hn::And(hn::IfThenElse(second_leads, second, first), sign_bit);
    const auto same = hn::Eq(hn::And(hn::Xor(first, second), sign_bit), zero);
    const auto apart = hn::Sub(lead, other);
    const auto halvings = hn::IfThenElse(same, apart, hn::Max(hn::Sub(apart, one), zero));
    const auto step = hn::IfThenElseZero(moves_up(halvings, numbers.bits(i)), one);
    const auto grown = hn::Min(hn::Add(lead, step), most);
    const auto sum = hn::IfThenElse(same, grown, hn::Sub(lead, step));
    const auto is_alone = hn::Eq(other, zero);
    const auto cancels = hn::AndNot(same, hn::Eq(apart, zero));
    const auto exponent = hn::IfThenElse(is_alone, lead, hn::IfThenZeroElse(cancels, sum));
    const auto is_zero = hn::Eq(exponent, zero);
    const auto code = hn::Or(exponent, hn::IfThenZeroElse(is_zero, sign));
    hn::StoreU(hn::DemoteTo(DCode(), code), DCode(), a + i);
  }
  RoundingPlace rest = place;
  rest.first += i;
  add_exponents_scalar(a + i, b + i, count - i, rest);
}

const ExponentKernels* exponent_table() {
  static constexpr ExponentKernels kTable = {encode_exponent_vectors, add_exponent_vectors};
  return &kTable;
}
#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersum {
namespace {

// Adding 23 random bits to those of a float32 carries into its exponent as often as its mantissa is
// large: 2^E (1 + m) becomes 2^(E + 1) with probability m. Below the least power there is only that
// one and zero.
uint32_t exponent_of(float magnitude, uint32_t headroom, float to_least, uint32_t random) {
  const uint32_t bits = float_bits(magnitude);
  const uint32_t carried = (bits + (random >> (32 - kMantissaBits))) >> kMantissaBits;
  const uint32_t least = rounding_share(random) < magnitude * to_least ? 1 : 0;
  return bits >> kMantissaBits > headroom ? carried - headroom : least;
}

// Of powers that lie d apart, the larger one 1: 1 + 2^-d becomes 2 with probability 2^-d; 1 - 2^-d
// becomes 1/2 with probability 2^(1-d), and is zero for d = 0.
uint32_t add_codes(uint32_t a, uint32_t b, uint32_t random) {
  const uint32_t a_exponent = a & kExponentMax;
  const uint32_t b_exponent = b & kExponentMax;
  const bool a_leads = a_exponent >= b_exponent;
  const uint32_t lead = a_leads ? a_exponent : b_exponent;
  const uint32_t other = a_leads ? b_exponent : a_exponent;
  const uint32_t sign = (a_leads ? a : b) & kExponentSign;
  const bool same = ((a ^ b) & kExponentSign) == 0;
  if (other == 0) return lead == 0 ? 0 : lead | sign;
  const uint32_t apart = lead - other;
  if (!same && apart == 0) return 0;
  const uint32_t halvings = same ? apart : apart - 1;
  const bool moves = halvings <= 32 && (uint64_t{random} << halvings) >> 32 == 0;
  const uint32_t step = moves ? 1 : 0;
  const uint32_t exponent = same ? std::min(lead + step, kExponentMax) : lead - step;
  return exponent | sign;
}

}  // namespace

void encode_exponents_scalar(const float* values, size_t count, uint32_t headroom,
                             const RoundingPlace& place, uint8_t* codes) {
  const float to_least = to_least_power(headroom);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = float_bits(values[i]);
    const float magnitude = float_from_bits(bits & 0x7fffffffU);
    const uint32_t exponent = exponent_of(magnitude, headroom, to_least, rounding_bits(place, i));
    const uint32_t sign = exponent == 0 ? 0 : bits >> 31;
    codes[i] = static_cast<uint8_t>(exponent | sign << 7);
  }
}

void add_exponents_scalar(uint8_t* a, const uint8_t* b, size_t count, const RoundingPlace& place) {
  for (size_t i = 0; i < count; ++i) {
    a[i] = static_cast<uint8_t>(add_codes(a[i], b[i], rounding_bits(place, i)));
  }
}

const ExponentKernels& exponent_kernels_of(int64_t target) {
  static constexpr TableFunction<ExponentKernels> kTables[] = {
      HWY_CHOOSE_TARGET_LIST(exponent_table), HWY_CHOOSE_FALLBACK(exponent_table)};
  static constexpr ExponentKernels kReference = {encode_exponents_scalar, add_exponents_scalar};
  return table_of(target, kTables, &kReference);
}

void encode_exponents(const float* values, size_t count, uint32_t headroom,
                      const RoundingPlace& place, uint8_t* codes) {
  exponent_kernels_of(active_target()).encode(values, count, headroom, place, codes);
}

void add_exponents(uint8_t* a, const uint8_t* b, size_t count, const RoundingPlace& place) {
  exponent_kernels_of(active_target()).add(a, b, count, place);
}

}  // namespace tersum
#endif  // HWY_ONCE
