// The kernels that codec_bench times, the memory that they work on, and the clock's part.
//
// Thread safety: one thread per Arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/median.h"
#include "codec/channel_state.h"
#include "codec/codec.h"
#include "platform/system_clock.h"

namespace tersum {

inline constexpr size_t kPeers = 3;
inline constexpr size_t kChannels = 384;

// Memory whose start is on a cache line, each array at another offset within a page, as arrays of a
// program are; equal offsets would make loads wait for unrelated stores.
template <typename T>
class Array {
 public:
  Array(size_t count, size_t stagger) : memory_(count * sizeof(T) + kPage + 832 * stagger) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = reinterpret_cast<T*>(memory_.data() + (kPage - address % kPage) + 832 * stagger);
  }
  [[nodiscard]] T* data() const { return data_; }

 private:
  static constexpr size_t kPage = 4096;
  std::vector<std::byte> memory_;
  T* data_;
};

struct Arrays {
  // `has_residual`: every call adds one to what it reads.
  Arrays(const Codec& codec, size_t count, bool has_residual = false)
      : values(count, 0),
        own(count, 1),
        out(count, 2),
        copy(count, 3),
        wire_out(codec.wire_bytes(count), 4),
        residual(count, 5 + kPeers),
        channels(kChannels) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (auto* const array : {&values, &own, &out, &copy, &residual}) {
      for (size_t i = 0; i < count; ++i) array->data()[i] = normal(random);
    }
    // What a flattening codec knows, of random rows.
    channels.observe(values.data(), count / kChannels * kChannels, DataType::kFloat32, 1);
    if (codec.flattens()) place.factors = channels.factors();
    for (size_t peer = 0; peer < kPeers; ++peer) {
      wires.emplace_back(codec.wire_bytes(count), 5 + peer);
      codec.encode(values.data(), count, wires.back().data(), place);
      pointers.push_back(wires.back().data());
    }
    if (has_residual) place.added.residual = residual.data();
  }

  Array<float> values, own, out, copy;
  Array<std::byte> wire_out;
  std::vector<Array<std::byte>> wires;
  std::vector<const std::byte*> pointers;
  Array<float> residual;
  ChannelState channels;
  SlicePlace place;
};

// Something to be timed; the first of all is memcpy.
struct Kernel {
  std::string name;
  std::function<void()> run;
};

inline std::vector<Kernel> kernels_of(const Codec& codec, Arrays& a, size_t count) {
  const std::span<const std::byte* const> peers(a.pointers);
  const auto combine = [&codec, &a, peers, count](size_t n, std::byte* wire, float* values) {
    codec.combine(peers.first(n), a.own.data(), 0, count, {}, wire, values, a.place);
  };
  std::byte* const wire = a.wire_out.data();
  return {
      {"memcpy", [&a, count] { std::memcpy(a.copy.data(), a.values.data(), count * 4); }},
      {"encode",
       [&codec, &a, wire, count] { codec.encode(a.values.data(), count, wire, a.place); }},
      {"decode",
       [&codec, &a, count] { codec.decode(a.pointers[0], count, a.out.data(), a.place); }},
      {"decode_add", [combine, &a] { combine(1, nullptr, a.own.data()); }},
      {"hop", [combine, wire] { combine(1, wire, nullptr); }},
      {"combine_1", [combine, &a, wire] { combine(1, wire, a.out.data()); }},
      {"combine_3", [combine, &a, wire] { combine(3, wire, a.out.data()); }},
  };
}

inline double seconds_of(const SystemClock& clock, const std::function<void()>& run,
                         size_t repeats) {
  const int64_t start = clock.now_ns();
  for (size_t i = 0; i < repeats; ++i) {
    run();
    asm volatile("" ::: "memory");
  }
  return static_cast<double>(clock.now_ns() - start) * 1e-9 / static_cast<double>(repeats);
}

}  // namespace tersum
