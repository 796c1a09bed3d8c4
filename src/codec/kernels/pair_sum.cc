#include "codec/kernels/pair_sum.h"

#include "codec/kernels/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/pair_sum.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

#ifndef TERSUM_PAIR_SUM_TABLE_
#define TERSUM_PAIR_SUM_TABLE_
namespace tersum {
struct PairKernels {
  AddPairs add = nullptr;
};
void add_pairs_scalar(const PairTable& table, const std::byte* a, const std::byte* b, size_t bytes,
                      std::byte* out);
}  // namespace tersum
#endif

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
const PairKernels* pair_table() { return nullptr; }
#else
using DB = hn::CappedTag<uint8_t, 64>;
using VB = hn::Vec<DB>;

template <int kBits>
HWY_INLINE VB shift_right(VB v) {
  const hn::Repartition<uint16_t, DB> dw;
  return hn::BitCast(DB(), hn::ShiftRight<kBits>(hn::BitCast(dw, v)));
}
template <int kBits>
HWY_INLINE VB shift_left(VB v) {
  const hn::Repartition<uint16_t, DB> dw;
  return hn::BitCast(DB(), hn::ShiftLeft<kBits>(hn::BitCast(dw, v)));
}

// The tables hold the result in bits 0 and 1, and the same in bits 4 and 5.
struct PairLookup {
  VB low;
  VB high;
  // `index`: two indices, one in each nibble. The results lie in bits 0, 1 and 4, 5.
  HWY_INLINE VB of(VB index) const {
    const auto nibble = hn::Set(DB(), uint8_t{0x0f});
    const auto first = hn::TableLookupBytes(low, hn::And(index, nibble));
    const auto second = hn::TableLookupBytes(high, hn::And(shift_right<4>(index), nibble));
    return hn::Or(first, second);
  }
};

// Nothing shifts bytes, and what 16-bit lanes shift across is masked away.
HWY_INLINE VB add_bytes(const PairLookup& lookup, VB a, VB b) {
  const auto even = hn::Set(DB(), uint8_t{0x33});  // codes 0 and 2 of a byte
  const auto from_even = hn::Or(hn::And(a, even), shift_left<2>(hn::And(b, even)));
  const auto from_odd = hn::Or(hn::And(shift_right<2>(a), even), hn::AndNot(even, b));
  return hn::Or(lookup.of(from_even), shift_left<2>(lookup.of(from_odd)));
}

void add_vectors(const PairTable& table, const std::byte* a, const std::byte* b, size_t bytes,
                 std::byte* out) {
  const DB d;
  constexpr size_t kVector = hn::MaxLanes(DB());
  alignas(16) uint8_t shifted[16];
  for (size_t i = 0; i < 16; ++i) shifted[i] = static_cast<uint8_t>(table[i] << 4);
  const PairLookup lookup{hn::LoadDup128(d, table.data()), hn::LoadDup128(d, shifted)};
  const auto* const from_a = reinterpret_cast<const uint8_t*>(a);
  const auto* const from_b = reinterpret_cast<const uint8_t*>(b);
  auto* const to = reinterpret_cast<uint8_t*>(out);
  size_t i = 0;
  for (; i + kVector <= bytes; i += kVector) {
    const auto sum = add_bytes(lookup, hn::LoadU(d, from_a + i), hn::LoadU(d, from_b + i));
    hn::StoreU(sum, d, to + i);
  }
  add_pairs_scalar(table, a + i, b + i, bytes - i, out + i);
}

const PairKernels* pair_table() {
  static constexpr PairKernels kTable = {add_vectors};
  return &kTable;
}
#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersum {

void add_pairs_scalar(const PairTable& table, const std::byte* a, const std::byte* b, size_t bytes,
                      std::byte* out) {
  for (size_t i = 0; i < bytes; ++i) {
    const auto first = static_cast<uint32_t>(a[i]);
    const auto second = static_cast<uint32_t>(b[i]);
    uint32_t sum = 0;
    for (uint32_t bit = 0; bit < 8; bit += 2) {
      const uint32_t index = (first >> bit & 3U) | (second >> bit & 3U) << 2;
      sum |= uint32_t{table[index]} << bit;
    }
    out[i] = static_cast<std::byte>(sum);
  }
}

PairTable mean_pair_table() {
  PairTable table{};
  for (uint32_t a = 0; a < 4; ++a) {
    for (uint32_t b = 0; b < 4; ++b) {
      const uint32_t twice = a + b;  // of the code of the mean; odd ones lie between two
      const uint32_t up = twice % 2 != 0 && a > b ? 1 : 0;
      table[a + 4 * b] = static_cast<uint8_t>(twice / 2 + up);
    }
  }
  return table;
}

AddPairs add_pairs_of(int64_t target) {
  static constexpr TableFunction<PairKernels> kTables[] = {HWY_CHOOSE_TARGET_LIST(pair_table),
                                                           HWY_CHOOSE_FALLBACK(pair_table)};
  static constexpr PairKernels kReference = {add_pairs_scalar};
  return table_of(target, kTables, &kReference).add;
}

void add_pairs(const PairTable& table, const std::byte* a, const std::byte* b, size_t bytes,
               std::byte* out) {
  add_pairs_of(active_target())(table, a, b, bytes, out);
}

}  // namespace tersum
#endif  // HWY_ONCE
