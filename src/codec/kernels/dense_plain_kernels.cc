#include <type_traits>

#include "base/check.h"
#include "codec/kernels/dense_kernels.h"
#include "codec/kernels/dense_reference.h"
#include "codec/kernels/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/dense_plain_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "codec/kernels/dense_kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
const DenseKernels* dense_plain_table() { return nullptr; }
#else

template <typename T>
void combine_plain(const DenseFormat& format, const CombineArgs& args) {
  // No vector instruction divides integers.
  if (std::is_integral_v<T> && args.finish.divides()) return reference_combine(format, args);
  combine_op<PlainVectors<T>, PlainVectors<T> >(format, args);
}

void combine_in_own_type(const DenseFormat& format, const CombineArgs& args) {
  switch (format.type) {
    case DataType::kFloat64:
      return combine_plain<double>(format, args);
    case DataType::kInt32:
      return combine_plain<int32_t>(format, args);
    case DataType::kInt64:
      return combine_plain<int64_t>(format, args);
    case DataType::kUint8:
      return combine_plain<uint8_t>(format, args);
    default:
      TERSUM_CHECK(false);
  }
}

const DenseKernels* dense_plain_table() {
  static constexpr DenseKernels kTable = {reference_encode, reference_decode, combine_in_own_type};
  return &kTable;
}
#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersum {

const DenseKernels& dense_plain_kernels_of(int64_t target) {
  static constexpr DenseKernels kReference = {reference_encode, reference_decode,
                                              reference_combine};
  static constexpr TableFunction<DenseKernels> kTables[] = {
      HWY_CHOOSE_TARGET_LIST(dense_plain_table), HWY_CHOOSE_FALLBACK(dense_plain_table)};
  return table_of(target, kTables, &kReference);
}

}  // namespace tersum
#endif  // HWY_ONCE
