#include "codec/kernels/added_terms.h"

#include <algorithm>

#include "codec/kernels/dense_elements.h"
#include "codec/kernels/element_kernels.h"

namespace tersum {
namespace {

// Shorter periods are repeated in memory before they are added.
constexpr size_t kPeriodMin = 256;

// bias[first % period] on, `count` of them: one period from memory, the rest from that.
void load_bias(const ElementKernels& kernels, ValueKind kind, const AddedTerms& added, size_t first,
               size_t count, float* terms) {
  const size_t period = added.bias_values;
  const size_t loaded = std::min(count, period);
  alignas(64) float start[kPeriodMin];
  kernels.load(kind, added.bias, 0, period, start);
  for (size_t i = 0; i < loaded; ++i) terms[i] = start[(first + i) % period];
  for (size_t i = loaded; i < count; ++i) terms[i] = terms[i - period];
}

void add_bias(const ElementKernels& kernels, ValueKind kind, const AddedTerms& added, size_t first,
              size_t count, float* values) {
  const size_t period = added.bias_values;
  if (period < kPeriodMin) {
    alignas(64) float terms[kTileMemory];
    load_bias(kernels, kind, added, first, count, terms);
    // What the kernel may add behind the end.
    std::fill_n(terms + count, kTilePad, 0.0F);
    return kernels.add(terms, count, values);
  }
  size_t phase = first % period;
  for (size_t at = 0; at < count; phase = 0) {
    const size_t run = std::min(count - at, period - phase);
    kernels.add_values(kind, added.bias, phase, run, values + at);
    at += run;
  }
}

void add_run(const DenseFormat& format, const std::byte* terms, size_t count, std::byte* sums) {
  with_elements(format, [&]<class Wire, class Value>() {
    for (size_t i = 0; i < count; ++i) {
      Value::store(reduce_pair(ReduceOp::kSum, Value::load(sums, i), Value::load(terms, i)), sums,
                   i);
    }
  });
}

}  // namespace

void add_terms(const ElementKernels& kernels, ValueKind kind, const AddedTerms& added, size_t first,
               size_t count, float* values) {
  for (size_t at = 0; at < count; at += kTileValues) {
    const size_t here = std::min(kTileValues, count - at);
    if (added.residual != nullptr) {
      kernels.add_values(kind, added.residual, first + at, here, values + at);
    }
    if (added.bias != nullptr) add_bias(kernels, kind, added, first + at, here, values + at);
  }
}

void load_with_terms(const ElementKernels& kernels, ValueKind kind, const void* values,
                     const AddedTerms& added, size_t begin, size_t first, size_t count,
                     float* tile) {
  kernels.load(kind, values, first, count, tile);
  if (added.is_any()) add_terms(kernels, kind, added, begin + first, count, tile);
}

void add_terms(ValueKind kind, const AddedTerms& added, size_t first, const std::byte* values,
               size_t count, std::byte* sums) {
  const ElementKernels& kernels = element_kernels();
  alignas(64) float tile[kTileMemory];
  for (size_t at = 0; at < count; at += kTileValues) {
    const size_t here = std::min(kTileValues, count - at);
    load_with_terms(kernels, kind, values, added, first, at, here, tile);
    kernels.store(kind, tile, here, sums, at);
  }
}

void add_terms(const DenseFormat& format, const AddedTerms& added, size_t first,
               const std::byte* values, size_t count, std::byte* sums) {
  const size_t bytes = element_bytes(format.type);
  std::copy_n(values, count * bytes, sums);
  if (added.residual != nullptr) {
    const auto* const residual = static_cast<const std::byte*>(added.residual);
    add_run(format, residual + first * bytes, count, sums);
  }
  if (added.bias == nullptr) return;
  const auto* const bias = static_cast<const std::byte*>(added.bias);
  size_t phase = first % added.bias_values;
  for (size_t at = 0; at < count; phase = 0) {
    const size_t run = std::min(count - at, added.bias_values - phase);
    add_run(format, bias + phase * bytes, run, sums + at * bytes);
    at += run;
  }
}

}  // namespace tersum
