#include "codec/kernels/element_kernels.h"

#include "codec/kernels/dispatch.h"
#include "codec/kernels/element_reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/element_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "codec/kernels/element_coding-inl.h"
#include "codec/kernels/element_errors-inl.h"
#include "codec/kernels/element_levels-inl.h"
#include "codec/kernels/element_packing-inl.h"
#include "codec/kernels/element_products-inl.h"
#include "codec/kernels/element_rotation-inl.h"
#include "codec/kernels/element_rounding-inl.h"
#include "codec/kernels/element_scales-inl.h"
#include "codec/kernels/element_shifts-inl.h"
#include "codec/kernels/element_tiles-inl.h"
#include "codec/kernels/integer_rotation-inl.h"
#include "codec/kernels/owed_values-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
const ElementKernels* element_table() { return nullptr; }
#else
const ElementKernels* element_table() {
  static constexpr ElementKernels kTable = {load_tile,
                                            store_tile,
                                            add_tile,
                                            add_values_tile,
                                            add_owed_values,
                                            keep_lost_values,
                                            finish_tile,
                                            multiply_tile,
                                            limit_tile,
                                            tile_maxima,
                                            finite_maximum_of_tile,
                                            block_errors,
                                            tile_magnitudes,
                                            choose_tile_scales,
                                            choose_tile_means,
                                            read_tile_scales,
                                            quantize_tile,
                                            quantize_random_tile,
                                            dequantize_tile,
                                            dequantize_add_tile,
                                            dequantize_sums,
                                            dequantize_wire,
                                            all_numbers_tile,
                                            add_shifted_codes,
                                            scale_shifted_sums,
                                            pack_codes,
                                            unpack_codes,
                                            rotate_tile,
                                            unrotate_tile,
                                            rotated_maxima_of_tile,
                                            unrotate_codes_tile,
                                            multiply_blocks_tile};
  return &kTable;
}
#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersum {

const ElementKernels& element_kernels_of(int64_t target) {
  static constexpr TableFunction<ElementKernels> kTables[] = {HWY_CHOOSE_TARGET_LIST(element_table),
                                                              HWY_CHOOSE_FALLBACK(element_table)};
  return table_of(target, kTables, &element_reference());
}

const ElementKernels& element_kernels() { return element_kernels_of(active_target()); }

}  // namespace tersum
#endif  // HWY_ONCE
