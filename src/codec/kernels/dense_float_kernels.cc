#include "base/check.h"
#include "codec/kernels/dense_kernels.h"
#include "codec/kernels/dense_reference.h"
#include "codec/kernels/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/dense_float_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "codec/kernels/dense_kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
const DenseKernels* dense_float_table() { return nullptr; }
#else

using Float32Vectors = FloatVectors<Float32Format>;
using BFloat16Vectors = FloatVectors<BFloat16Format>;
using Float16Vectors = FloatVectors<Float16Format>;
template <class Limits>
using Bf16WireVectors = FloatVectors<Bf16WireFormat<Limits> >;

void combine_float(const DenseFormat& format, const CombineArgs& args) {
  if (format.wire == DenseWire::kBFloat16) {
    return format.type == DataType::kFloat16
               ? combine_dense<Bf16WireVectors<Bf16WireOfFloat16>, Float16Vectors, SumOp>(format,
                                                                                          args)
               : combine_dense<Bf16WireVectors<Bf16WireOfFloat32>, Float32Vectors, SumOp>(format,
                                                                                          args);
  }
  switch (format.type) {
    case DataType::kFloat32:
      return combine_op<Float32Vectors, Float32Vectors>(format, args);
    case DataType::kBFloat16:
      return combine_op<BFloat16Vectors, BFloat16Vectors>(format, args);
    case DataType::kFloat16:
      return combine_op<Float16Vectors, Float16Vectors>(format, args);
    default:
      TERSUM_CHECK(false);
  }
}

void encode_float(const DenseFormat& format, const void* values, size_t count, std::byte* wire) {
  const auto* const from = static_cast<const std::byte*>(values);
  size_t done = 0;
  if (format.wire == DenseWire::kBFloat16) {
    done =
        format.type == DataType::kFloat16
            ? convert_runs<Float16Vectors, Bf16WireVectors<Bf16WireOfFloat16> >(from, count, wire)
            : convert_runs<Float32Vectors, Bf16WireVectors<Bf16WireOfFloat32> >(from, count, wire);
  }
  reference_encode(format, from + done * element_bytes(format.type), count - done,
                   wire + dense_wire_bytes(format, done));
}

void decode_float(const DenseFormat& format, const std::byte* wire, size_t count, void* values) {
  auto* const to = static_cast<std::byte*>(values);
  size_t done = 0;
  if (format.wire == DenseWire::kBFloat16) {
    done = format.type == DataType::kFloat16
               ? convert_runs<BFloat16Vectors, Float16Vectors>(wire, count, to)
               : convert_runs<BFloat16Vectors, Float32Vectors>(wire, count, to);
  }
  reference_decode(format, wire + dense_wire_bytes(format, done), count - done,
                   to + done * element_bytes(format.type));
}

const DenseKernels* dense_float_table() {
  static constexpr DenseKernels kTable = {encode_float, decode_float, combine_float};
  return &kTable;
}
#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersum {

const DenseKernels& dense_float_kernels_of(int64_t target) {
  static constexpr DenseKernels kReference = {reference_encode, reference_decode,
                                              reference_combine};
  static constexpr TableFunction<DenseKernels> kTables[] = {
      HWY_CHOOSE_TARGET_LIST(dense_float_table), HWY_CHOOSE_FALLBACK(dense_float_table)};
  return table_of(target, kTables, &kReference);
}

}  // namespace tersum
#endif  // HWY_ONCE
