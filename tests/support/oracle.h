// The exact oracle of a sum: float64, and the bound composed block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "plan/plan.h"
#include "tersum/data_type.h"
#include "tersum/options.h"

namespace tersum::testing {

// Values of one rank, kept as float64 that the data type represents exactly, and as raw bytes.
struct TypedArray {
  DataType type = DataType::kFloat32;
  std::vector<double> values;
  std::vector<std::byte> bytes;
};

// Random values: N(0, 1) times a magnitude per 64 elements for floats, small integers for the
// others.
TypedArray random_array(DataType type, size_t count, std::mt19937_64& random);
// Reads raw bytes back.
std::vector<double> to_doubles(DataType type, const std::vector<std::byte>& bytes);

// The reduction of all ranks' arrays in float64 (integers: exact, wrapped to the type).
std::vector<double> exact_reduction(DataType type, ReduceOp op,
                                    const std::vector<TypedArray>& ranks);

// Checks every element of `result` against the oracle within the bound of the plan, the absolute
// maxima taken per block of the codec. Blocks begin at multiples of `part` elements too (0: none).
// Returns "" or a sentence on the first breach.
std::string check_reduction(const Codec& codec, const Plan& plan, ReduceOp op,
                            const std::vector<TypedArray>& ranks,
                            const std::vector<std::byte>& result, size_t first, size_t part);

}  // namespace tersum::testing
