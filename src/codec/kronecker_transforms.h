// Kronecker transforms: matrices that somebody trained for "+kronecker:…", known to this process by
// number. docs/codecs.md, "The modifier +kronecker", is the specification.
//
// A transform is named by the file it stands in, or by its digest, which is what normal forms hold.
// A file is read once.
//
// Thread safety: any thread. Invariants: transforms are never changed or forgotten; two numbers
// name transforms of other numbers. Finding one that is known does not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "codec/kernels/block_product.h"
#include "tersum/status.h"

namespace tersum {

struct KroneckerTransform {
  std::string name;  // the digest
  // Why a spec with blocks of another size is refused.
  std::string other_blocks;
  BlockProduct there;  // P1^T X P2, scaled so that no magnitude grows
  BlockProduct back;
  // Factors of channels, and what undoes them: one period and kFactorTail values of the next. Null:
  // none.
  const float* diagonal = nullptr;
  const float* undo_diagonal = nullptr;
  size_t channels = 1;
  // The most that a magnitude of 1 becomes there, back and by the diagonal's undoing.
  double there_norm = 0;
  double back_norm = 0;
  double undo_max = 1;
  // The most that there and back leave of a block with the largest magnitude 1, beside roundings:
  // the inverses are float32 numbers.
  double residual = 0;

  [[nodiscard]] size_t block() const { return there.block(); }
};

// What one side's matrix may make of an error: the product of its 1-norm and its inverse's.
inline constexpr double kConditionMax = 1024;
// The largest factor of a channel over the smallest.
inline constexpr double kDiagonalRatioMax = 1024;
inline constexpr size_t kDiagonalMax = 65'536;

// The transform's number, from 1 on. `p1`, `p2`: square matrices, row by row, with sides that are
// powers of two up to kProductSideMax, blocks of 16 to 1,024 together. `diagonal`: a factor for
// each channel, empty for none. kInvalidArgument says what is wrong, and where.
Result<uint16_t> register_kronecker_transform(std::span<const float> p1, std::span<const float> p2,
                                              std::span<const float> diagonal);

// `name`: the digest of a registered transform, or a file (docs/wire-format.md, "Files of
// +kronecker"). kInvalidArgument names the file, what is wrong with it and the remedy.
Result<uint16_t> find_kronecker_transform(std::string_view name);

// `number`: one that a function above gave.
const KroneckerTransform& kronecker_transform(uint16_t number);

}  // namespace tersum
