#include "codec/kernels/block_kernels.h"

#include "base/check.h"
#include "codec/kernels/block_reference.h"
#include "codec/kernels/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/block_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "codec/kernels/block_combine-inl.h"
#include "codec/kernels/block_kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
// One lane at a time is what the reference is.
const BlockKernels* block_table() { return nullptr; }
#else

template <int kBits>
void encode_kind(const BlockFormat& format, const void* values, size_t count, std::byte* wire) {
  switch (format.kind) {
    case ValueKind::kFloat32:
      return encode_slice<kBits, Float32Format>(format, values, count, wire);
    case ValueKind::kBFloat16:
      return encode_slice<kBits, BFloat16Format>(format, values, count, wire);
    case ValueKind::kFloat16:
      return encode_slice<kBits, Float16Format>(format, values, count, wire);
  }
}

template <int kBits>
void decode_kind(const BlockFormat& format, const std::byte* wire, size_t count, void* values) {
  switch (format.kind) {
    case ValueKind::kFloat32:
      return decode_slice<kBits, Float32Format>(format, wire, count, values);
    case ValueKind::kBFloat16:
      return decode_slice<kBits, BFloat16Format>(format, wire, count, values);
    case ValueKind::kFloat16:
      return decode_slice<kBits, Float16Format>(format, wire, count, values);
  }
}

template <int kBits>
void combine_kind(const BlockFormat& format, const CombineArgs& args) {
  switch (format.kind) {
    case ValueKind::kFloat32:
      return combine_slice<kBits, Float32Format>(format, args);
    case ValueKind::kBFloat16:
      return combine_slice<kBits, BFloat16Format>(format, args);
    case ValueKind::kFloat16:
      return combine_slice<kBits, Float16Format>(format, args);
  }
}

void encode(const BlockFormat& format, const void* values, size_t count, std::byte* wire) {
  format.bits == 8 ? encode_kind<8>(format, values, count, wire)
                   : encode_kind<4>(format, values, count, wire);
}
void decode(const BlockFormat& format, const std::byte* wire, size_t count, void* values) {
  format.bits == 8 ? decode_kind<8>(format, wire, count, values)
                   : decode_kind<4>(format, wire, count, values);
}
void combine(const BlockFormat& format, const CombineArgs& args) {
  format.bits == 8 ? combine_kind<8>(format, args) : combine_kind<4>(format, args);
}

const BlockKernels* block_table() {
  static constexpr BlockKernels kTable = {encode, decode, combine};
  return &kTable;
}
#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersum {
namespace {

constexpr BlockKernels kReference = {reference_encode, reference_decode, reference_combine};

using TableFunction = const BlockKernels* (*)();
constexpr TableFunction kTables[] = {HWY_CHOOSE_TARGET_LIST(block_table),
                                     HWY_CHOOSE_FALLBACK(block_table)};

}  // namespace

const BlockKernels& block_kernels_of(int64_t target) {
  if (target == kReferenceTarget) return kReference;
  const TableFunction table = kTables[table_index(target)];
  TERSUM_CHECK(table != nullptr && table() != nullptr);
  return *table();
}

const BlockKernels& block_kernels() { return block_kernels_of(active_target()); }

}  // namespace tersum
#endif  // HWY_ONCE
