#include "codec/kernels/block_kernels.h"
#include "codec/kernels/block_reference.h"
#include "codec/kernels/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/int8_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "codec/kernels/block_tables-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {
const BlockKernels* int8_table() { return block_table<8>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersum {

const BlockKernels& int8_kernels_of(int64_t target) {
  static constexpr BlockKernels kReference = {reference_encode,        reference_encode_blocks,
                                              reference_decode,        reference_decode_blocks,
                                              reference_decode_blocks, reference_combine};
  static constexpr TableFunction<BlockKernels> kTables[] = {HWY_CHOOSE_TARGET_LIST(int8_table),
                                                            HWY_CHOOSE_FALLBACK(int8_table)};
  return table_of(target, kTables, &kReference);
}

}  // namespace tersum
#endif  // HWY_ONCE
