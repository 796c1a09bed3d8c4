#include "runtime/tuning/list_sample.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tersum {
namespace {

size_t padded(const TensorRef& tensor) {
  return (tensor.count + kListBlock - 1) / kListBlock * kListBlock;
}

}  // namespace

size_t list_values(std::span<const TensorRef> tensors) {
  size_t values = 0;
  for (const TensorRef& tensor : tensors) values += padded(tensor);
  return values;
}

std::vector<std::byte> list_runs(std::span<const TensorRef> tensors, DataType type,
                                 std::span<const size_t> starts, size_t run_values) {
  const size_t value_bytes = element_bytes(type);
  const size_t values = list_values(tensors);
  TERSUM_CHECK(std::is_sorted(starts.begin(), starts.end()));
  std::vector<std::byte> runs;
  runs.reserve(starts.size() * run_values * value_bytes);
  size_t index = 0;
  size_t begin = 0;  // of tensor `index` in the array
  for (const size_t start : starts) {
    const size_t end = std::min(start + run_values, values);
    for (size_t at = start; at < end;) {
      for (; at >= begin + padded(tensors[index]); ++index) begin += padded(tensors[index]);
      const TensorRef& tensor = tensors[index];
      const size_t within = at - begin;
      const size_t here = std::min(end, begin + padded(tensor)) - at;
      const size_t real = within < tensor.count ? std::min(here, tensor.count - within) : 0;
      const auto* const from = static_cast<const std::byte*>(tensor.input);
      if (real > 0) {
        runs.insert(runs.end(), from + within * value_bytes, from + (within + real) * value_bytes);
      }
      runs.resize(runs.size() + (here - real) * value_bytes);
      at += here;
    }
  }
  return runs;
}

}  // namespace tersum
