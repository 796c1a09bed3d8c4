#include "tersum/codec_info.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "codec/best_levels.h"
#include "codec/codec.h"
#include "codec/codec_spec.h"
#include "codec/kmeans_codec.h"
#include "codec/kronecker_transforms.h"
#include "codec/level_tables.h"
#include "codec/shared_sums.h"

namespace tersum {

Result<std::string> normalize_codec(std::string_view spec) {
  Result<CodecSpec> parsed = parse_codec_spec(spec);
  if (!parsed.ok()) return parsed.status();
  return parsed->to_string();
}

std::vector<std::string> known_codecs() {
  std::vector<std::string> names;
  names.reserve(format_rows().size());
  for (const FormatRow& row : format_rows()) names.emplace_back(row.name);
  return names;
}

Result<std::string> register_table(std::span<const float> levels) {
  const Result<uint16_t> number = register_level_table(levels);
  if (!number.ok()) return number.status();
  return "table:" + level_table(number.value()).name;
}

Result<std::vector<float>> learn_levels(std::span<const double> parts,
                                        std::span<const double> weights, size_t count) {
  if (count != 2 && count != 4 && count != 8 && count != 16) {
    return invalid_argument("there are 2, 4, 8 or 16 levels, not " + std::to_string(count));
  }
  if (parts.size() != weights.size()) {
    return invalid_argument(std::to_string(weights.size()) + " weights of " +
                            std::to_string(parts.size()) + " numbers; pass one for each");
  }
  double largest = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!(std::abs(parts[i]) <= 1) || !(weights[i] >= 0) || !std::isfinite(weights[i])) {
      return invalid_argument("number " + std::to_string(i) + " (" + std::to_string(parts[i]) +
                              ", of weight " + std::to_string(weights[i]) +
                              ") is not in [-1, 1], or its weight not finite and 0 or more");
    }
    largest = std::max(largest, weights[i]);
  }
  // By a power of two, so that no sum overflows and no bit is lost but of what weighs nothing.
  const int exponent = largest > 0 ? -std::ilogb(largest) : 0;
  LevelHistogram histogram;
  for (size_t i = 0; i < parts.size(); ++i) {
    histogram.add(parts[i], std::ldexp(weights[i], exponent));
  }
  std::vector<float> levels = histogram.best_levels(count);
  if (levels.empty()) return invalid_argument("there is nothing to learn from: no weight above 0");
  return levels;
}

Result<std::string> register_kronecker(std::span<const float> p1, std::span<const float> p2,
                                       std::span<const float> diagonal) {
  const Result<uint16_t> number = register_kronecker_transform(p1, p2, diagonal);
  if (!number.ok()) return number.status();
  return "kronecker:" + kronecker_transform(number.value()).name;
}

Result<CodecInfo> codec_info(std::string_view spec, DataType type, ReduceOp op) {
  const Result<const Codec*> found = find_codec(spec, type, op);
  if (!found.ok()) return found.status();
  const Codec& codec = with_levels(found.value());
  CodecInfo info;
  info.spec = found.value()->spec().to_string();
  info.value_type = type;
  info.block = std::max<uint32_t>(codec.spec().block, 1);
  info.lossless = codec.lossless();
  // Enough blocks that what a slice has once does not count.
  const size_t count = size_t{codec.block()} << 16;
  info.wire_bits = 8.0 * static_cast<double>(codec.wire_bytes(count)) / static_cast<double>(count);
  return info;
}

Result<size_t> codec_wire_bytes(std::string_view spec, size_t count, DataType type, ReduceOp op) {
  const Result<const Codec*> found = find_codec(spec, type, op);
  if (!found.ok()) return found.status();
  return with_levels(found.value()).wire_bytes(count);
}

Result<double> codec_sum_bits(std::string_view spec, uint32_t ranks, DataType type, ReduceOp op) {
  const Result<const Codec*> found = find_codec(spec, type, op);
  if (!found.ok()) return found.status();
  const Codec& codec = with_levels(found.value());
  TERSUM_RETURN_IF_ERROR(check_sum_ranks(codec, ranks));
  const Codec& sent = *summing_codec(codec, ranks, false);
  const size_t count = size_t{codec.block()} << 16;
  const size_t bytes = sent.wire_bytes(count) + sent.gathered(ranks).wire_bytes(count);
  const double bits = 4.0 * static_cast<double>(bytes) / static_cast<double>(count);
  const SharedSums* const sums = codec.shared_sums();
  const bool has_blocks = sums != nullptr && ranks > 1 && sums->scale_block() > 0;
  if (!has_blocks) return bits;
  return bits +
         16.0 * static_cast<double>(shared_scale_count(*sums, count)) / static_cast<double>(count);
}

Result<double> codec_block_error_bound(std::string_view spec, double absmax, DataType type,
                                       ReduceOp op) {
  const Result<const Codec*> found = find_codec(spec, type, op);
  if (!found.ok()) return found.status();
  return found.value()->block_error_bound(absmax);
}

}  // namespace tersum
