#include "codec/codec.h"

#include "base/check.h"

namespace tersum {

// Only codecs that take parts are asked for them, and those have their own.
void Codec::encode_part(const void* /*values*/, const SliceCut& /*cut*/, std::byte* /*wire*/,
                        const SlicePlace& /*place*/) const {
  TERSUM_CHECK(false && "this codec takes no parts");
}

void Codec::combine_part(std::span<const std::byte* const> /*wires*/, const void* /*own*/,
                         size_t /*own_index*/, const SliceCut& /*cut*/,
                         const CombineFinish& /*finish*/, std::byte* /*wire_out*/,
                         void* /*values_out*/, const SlicePlace& /*place*/) const {
  TERSUM_CHECK(false && "this codec takes no parts");
}

}  // namespace tersum
