// The table of kernels for one width of codes and one instruction set.
#if defined(TERSUM_CODEC_KERNELS_BLOCK_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_BLOCK_TABLES_INL_H_
#undef TERSUM_CODEC_KERNELS_BLOCK_TABLES_INL_H_
#else
#define TERSUM_CODEC_KERNELS_BLOCK_TABLES_INL_H_
#endif

#include "codec/kernels/block_coding-inl.h"
#include "codec/kernels/block_combine-inl.h"
#include "codec/kernels/block_kernels.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
// One lane at a time is what the reference is.
template <int kBits>
const BlockKernels* block_table() {
  return nullptr;
}
#else

template <int kBits>
void encode(const BlockFormat& format, const void* values, size_t count, std::byte* wire) {
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
void encode_blocks(const BlockFormat& format, const void* values, size_t count, size_t first,
                   size_t blocks, std::byte* wire) {
  switch (format.kind) {
    case ValueKind::kFloat32:
      return encode_whole_blocks<kBits, Float32Format>(format, values, count, first, blocks, wire);
    case ValueKind::kBFloat16:
      return encode_whole_blocks<kBits, BFloat16Format>(format, values, count, first, blocks, wire);
    case ValueKind::kFloat16:
      return encode_whole_blocks<kBits, Float16Format>(format, values, count, first, blocks, wire);
  }
}

template <int kBits>
void decode(const BlockFormat& format, const std::byte* wire, size_t count, void* values) {
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
void decode_blocks(const BlockFormat& format, const std::byte* wire, size_t count, size_t first,
                   size_t blocks, void* values) {
  switch (format.kind) {
    case ValueKind::kFloat32:
      return decode_whole_blocks<kBits, Float32Format>(format, wire, count, first, blocks, values);
    case ValueKind::kBFloat16:
      return decode_whole_blocks<kBits, BFloat16Format>(format, wire, count, first, blocks, values);
    case ValueKind::kFloat16:
      return decode_whole_blocks<kBits, Float16Format>(format, wire, count, first, blocks, values);
  }
}

template <int kBits>
void stream_blocks(const BlockFormat& format, const std::byte* wire, size_t count, size_t first,
                   size_t blocks, void* values) {
  decode_whole_blocks<kBits, StreamedFloat32Format>(format, wire, count, first, blocks, values);
}

template <int kBits>
void combine(const BlockFormat& format, const CombineArgs& args) {
  switch (format.kind) {
    case ValueKind::kFloat32:
      return combine_slice<kBits, Float32Format>(format, args);
    case ValueKind::kBFloat16:
      return combine_slice<kBits, BFloat16Format>(format, args);
    case ValueKind::kFloat16:
      return combine_slice<kBits, Float16Format>(format, args);
  }
}

template <int kBits>
const BlockKernels* block_table() {
  static constexpr BlockKernels kTable = {encode<kBits>,        encode_blocks<kBits>,
                                          decode<kBits>,        decode_blocks<kBits>,
                                          stream_blocks<kBits>, combine<kBits>};
  return &kTable;
}
#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#endif  // TERSUM_CODEC_KERNELS_BLOCK_TABLES_INL_H_
