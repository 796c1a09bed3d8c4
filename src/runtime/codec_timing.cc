#include "runtime/codec_timing.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/codec.h"
#include "codec/kmeans_codec.h"
#include "platform/system_clock.h"

namespace tersum {
namespace {

// Long against the clock's tick, short against a time slice of the system's.
constexpr size_t kValuesPerSample = 256 * 1024;

template <typename Run>
double seconds_of(const SystemClock& clock, size_t repeats, const Run& run) {
  const int64_t start = clock.now_ns();
  for (size_t i = 0; i < repeats; ++i) run();
  return static_cast<double>(std::max<int64_t>(clock.now_ns() - start, 1)) * 1e-9;
}

// Makes the compiler believe that somebody reads what was written.
void use(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

}  // namespace

Result<CodecTiming> time_codec(std::string_view spec, std::span<const float> values,
                               size_t rounds) {
  const Result<const Codec*> found = find_codec(spec, DataType::kFloat32, ReduceOp::kSum);
  if (!found.ok()) return found.status();
  if (values.empty() || rounds == 0) {
    return invalid_argument("a codec's speed is measured on one value or more, once or more often");
  }
  const Codec& codec = with_levels(found.value());
  const size_t count = values.size();
  std::vector<std::byte> wire(codec.wire_bytes(count));
  std::vector<float> copy(values.begin(), values.end());
  std::vector<float> sum(count);
  const std::byte* const wires[] = {wire.data()};
  const auto run_copy = [&] {
    std::memcpy(copy.data(), values.data(), count * sizeof(float));
    use(copy.data());
  };
  const auto run_encode = [&] { codec.encode(values.data(), count, wire.data()); };
  const auto run_add = [&] {
    codec.combine(wires, copy.data(), 0, count, {}, nullptr, sum.data());
  };
  const SystemClock clock;
  const size_t repeats = std::max<size_t>(1, kValuesPerSample / count);
  const auto pass = [&](const auto& run) {
    return seconds_of(clock, repeats, run) / static_cast<double>(repeats);
  };
  CodecTiming timing;
  for (size_t round = 0; round < rounds; ++round) {
    timing.copy.push_back(pass(run_copy));
    timing.encode.push_back(pass(run_encode));
    timing.decode_add.push_back(pass(run_add));
  }
  return timing;
}

}  // namespace tersum
