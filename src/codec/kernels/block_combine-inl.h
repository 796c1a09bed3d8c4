// Sums of encoded contributions and the owner's values, in vectors: decode-add, hop and combine.
//
// A group of blocks is summed in passes over a tile that stays in L1: own or the first wire and two
// more, then two at a time. What a pass costs is the decoding of its wires; the tile's loads and
// stores go beside it. So a pass reads few streams however many ranks there are.
#if defined(TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_
#undef TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_
#else
#define TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "codec/kernels/block_codes-inl.h"
#include "codec/kernels/block_coding-inl.h"
#include "codec/kernels/block_reference.h"
#include "codec/kernels/combine_args.h"
#include "codec/kernels/finish-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Terms: what is added up, by runs of 32 values of one block after the other.
template <int kBits>
class WireTerm {
 public:
  HWY_INLINE WireTerm(const std::byte* scales, const std::byte* codes)
      : scales_(scales), codes_(codes) {}
  HWY_INLINE void begin_block(size_t index, size_t block) {
    scale_.set(load_scale(scales_ + index * kScaleBytes));
    block_codes_ = codes_ + index * block * kBits / 8;
  }
  HWY_INLINE void load(size_t at, VF (&run)[kRunVectors]) const {
    load_values<kBits>(block_codes_ + at * kBits / 8, scale_, run);
  }

 private:
  const std::byte* scales_;
  const std::byte* codes_;
  const std::byte* block_codes_ = nullptr;
  RunScale<kBits> scale_;
};

template <class Format>
class ValuesTerm {
 public:
  HWY_INLINE explicit ValuesTerm(const std::byte* values) : values_(values) {}
  HWY_INLINE void begin_block(size_t index, size_t block) {
    block_values_ = values_ + index * block * Format::kBytes;
  }
  HWY_INLINE void load(size_t at, VF (&run)[kRunVectors]) const {
    for (size_t v = 0; v < kRunVectors; ++v) {
      run[v] = Format::load(block_values_ + (at + v * kLanes) * Format::kBytes);
    }
    prefetch_ahead<kNibbleGroup * Format::kBytes / kLineBytes>(block_values_ + at * Format::kBytes);
  }

 private:
  const std::byte* values_;
  const std::byte* block_values_ = nullptr;
};

// Own values with what is added to them. A run of a bias must lie in one piece: block_kernels.h.
template <class Format>
class OwnTerm {
 public:
  HWY_INLINE OwnTerm(const CombineArgs& args, size_t first)
      : own_(bytes_of(args.own, first)),
        residual_(bytes_of(args.added.residual, args.added_first + first)),
        bias_(bytes_of(args.added.bias, 0)),
        bias_values_(args.added.bias_values),
        first_(args.added_first + first),
        has_residual_(args.added.residual != nullptr) {}

  HWY_INLINE void begin_block(size_t index, size_t block) {
    own_.begin_block(index, block);
    if (has_residual_) residual_.begin_block(index, block);
    if (bias_ != nullptr) phase_ = (first_ + index * block) % bias_values_;
  }
  HWY_INLINE void load(size_t at, VF (&run)[kRunVectors]) const {
    own_.load(at, run);
    if (has_residual_) {
      VF terms[kRunVectors];
      residual_.load(at, terms);
      for (size_t v = 0; v < kRunVectors; ++v) run[v] = hn::Add(run[v], terms[v]);
    }
    if (bias_ == nullptr) return;
    const size_t place = phase_ + at < bias_values_ ? phase_ + at : phase_ + at - bias_values_;
    for (size_t v = 0; v < kRunVectors; ++v) {
      const auto term = Format::load(bias_ + (place + v * kLanes) * Format::kBytes);
      run[v] = hn::Add(run[v], term);
    }
  }

 private:
  static HWY_INLINE const std::byte* bytes_of(const void* values, size_t first) {
    if (values == nullptr) return nullptr;
    return static_cast<const std::byte*>(values) + first * Format::kBytes;
  }

  ValuesTerm<Format> own_;
  ValuesTerm<Format> residual_;
  const std::byte* bias_;
  size_t bias_values_;
  size_t first_;
  size_t phase_ = 0;
  bool has_residual_;
};

// Sinks: where a sum goes. A partial one to the tile, as it is.
class TileSink {
 public:
  HWY_INLINE explicit TileSink(float* tile) : tile_(tile) {}
  HWY_INLINE void begin_block(size_t index, size_t block) { block_tile_ = tile_ + index * block; }
  HWY_INLINE void put(size_t at, VF (&run)[kRunVectors]) {
    for (size_t v = 0; v < kRunVectors; ++v) {
      hn::Store(run[v], DF(), block_tile_ + at + v * kLanes);
    }
  }
  HWY_INLINE void end_block(size_t, size_t) {}

 private:
  float* tile_;
  float* block_tile_ = nullptr;
};

// The result to the tile, from where it will be encoded.
class MaximaSink {
 public:
  HWY_INLINE MaximaSink(float* tile, int32_t* maxima, const VectorFinish& finish)
      : tile_(tile), maxima_(maxima), finish_(finish) {}
  HWY_INLINE void begin_block(size_t index, size_t block) {
    tile_.begin_block(index, block);
    maximum_ = hn::Zero(DI());
  }
  HWY_INLINE void put(size_t at, VF (&run)[kRunVectors]) {
    finish_.apply(run);
    tile_.put(at, run);
    for (const auto& value : run) maximum_ = hn::Max(maximum_, magnitude_bits(value));
  }
  HWY_INLINE void end_block(size_t index, size_t) {
    hn::Store(maximum_, DI(), maxima_ + index * kLanes);
  }

 private:
  TileSink tile_;
  int32_t* maxima_;
  VectorFinish finish_;
  VI maximum_;
};

// Makes NaN canonical.
template <class Format>
HWY_NOINLINE void clean_values(size_t count, std::byte* values) {
  for (size_t i = 0; i < count; i += kLanes) {
    std::byte* const at = values + i * Format::kBytes;
    Format::store(Format::load(at), at);
  }
}

// The result as values.
template <class Format>
class ValuesSink {
 public:
  HWY_INLINE ValuesSink(std::byte* values, const VectorFinish& finish)
      : values_(values), finish_(finish) {}
  HWY_INLINE void begin_block(size_t index, size_t block) {
    block_values_ = values_ + index * block * Format::kBytes;
    nan_ = NanWatch();
  }
  HWY_INLINE void put(size_t at, VF (&run)[kRunVectors]) {
    finish_.apply(run);
    std::byte* const to = block_values_ + at * Format::kBytes;
    if constexpr (kWatched) {
      for (size_t v = 0; v < kRunVectors; v += 2) nan_.watch(run[v], run[v + 1]);
    }
    for (size_t v = 0; v < kRunVectors; ++v) {
      if constexpr (kWatched) {
        Format::store_clean(run[v], to + v * kLanes * Format::kBytes);
      } else {
        Format::store(run[v], to + v * kLanes * Format::kBytes);
      }
    }
  }
  HWY_INLINE void end_block(size_t, size_t block) {
    if constexpr (kWatched) {
      if (HWY_UNLIKELY(nan_.seen())) clean_values<Format>(block, block_values_);
    }
  }

 private:
  // A NaN is so rare that a block is looked at once, and gone through again if there is one.
  static constexpr bool kWatched = Format::kBytes == 4;

  std::byte* values_;
  std::byte* block_values_ = nullptr;
  VectorFinish finish_;
  NanWatch nan_;
};

template <class Term>
HWY_INLINE void add_term(const Term& term, size_t at, VF (&sum)[kRunVectors]) {
  VF run[kRunVectors];
  term.load(at, run);
  for (size_t v = 0; v < kRunVectors; ++v) sum[v] = hn::Add(sum[v], run[v]);
}

// The sum of the terms, in their order, over `blocks` whole blocks.
template <class Sink, class First, class... Rest>
HWY_NOINLINE void add_terms(size_t block, size_t blocks, Sink sink, First first, Rest... rest) {
  for (size_t b = 0; b < blocks; ++b) {
    first.begin_block(b, block);
    (rest.begin_block(b, block), ...);
    sink.begin_block(b, block);
    for (size_t i = 0; i < block; i += kNibbleGroup) {
      VF sum[kRunVectors];
      first.load(i, sum);
      (add_term(rest, i, sum), ...);
      sink.put(i, sum);
    }
    sink.end_block(b, block);
  }
}

// Blocks first..first+blocks-1 of a combine, and the tile that they are summed in. kAdds: something
// is added to own values.
template <int kBits, class Format, bool kAdds>
class GroupSum {
 public:
  HWY_INLINE GroupSum(const BlockFormat& format, const CombineArgs& args, size_t first,
                      size_t blocks, float* tile)
      : format_(format), args_(args), first_(first), blocks_(blocks), tile_(tile) {}

  // The whole sum to `sink`, in the order of the contributions.
  template <class Sink>
  HWY_INLINE void to(const Sink& sink) const {
    // Own comes first or, which gives the same bits, second: one pass takes it and what follows.
    const bool own_leads = args_.own != nullptr && args_.own_index <= 1;
    const bool own_pends = args_.own != nullptr && !own_leads;
    const size_t before = own_pends ? args_.own_index : args_.wire_count;
    if (own_leads) {
      add_wires(own(), 0, before, own_pends, sink);
    } else {
      add_wires(wire(0), 1, before, own_pends, sink);
    }
    if (!own_pends) return;
    const bool last = before == args_.wire_count;
    if (last) return add_terms(format_.block, blocks_, sink, carry(), own());
    add_terms(format_.block, blocks_, TileSink(tile_), carry(), own());
    add_wires(carry(), before, args_.wire_count, false, sink);
  }

 private:
  // One a pass leaves the tile's way in and out of L1 exposed; three gain nothing over two.
  static constexpr size_t kWiresAtOnce = 2;

  HWY_INLINE auto own() const {
    const size_t first = first_ * format_.block;
    if constexpr (kAdds) {
      return OwnTerm<Format>(args_, first);
    } else {
      return ValuesTerm<Format>(static_cast<const std::byte*>(args_.own) + first * Format::kBytes);
    }
  }
  HWY_INLINE ValuesTerm<Float32Format> carry() const {
    return ValuesTerm<Float32Format>(reinterpret_cast<const std::byte*>(tile_));
  }
  HWY_INLINE WireTerm<kBits> wire(size_t index) const {
    const std::byte* const from = args_.wires[index];
    const size_t first = first_slice_block(format_, args_) + first_;
    return WireTerm<kBits>(from + first * kScaleBytes,
                           from + code_offset(format_, args_.slice_count, first));
  }
  // first + wires begin..end-1, to the tile if more follows.
  template <class First, class Sink>
  HWY_INLINE void add_wires(const First& first, size_t begin, size_t end, bool more,
                            const Sink& sink) const {
    if (end - begin > kWiresAtOnce || more) {
      begin += add_pass(first, begin, end, TileSink(tile_));
      while (end - begin > kWiresAtOnce || (more && begin < end)) {
        begin += add_pass(carry(), begin, end, TileSink(tile_));
      }
      if (!more) add_pass(carry(), begin, end, sink);
    } else {
      add_pass(first, begin, end, sink);
    }
  }
  // As many as one pass takes. Returns how many.
  template <class First, class Sink>
  HWY_INLINE size_t add_pass(const First& first, size_t begin, size_t end, const Sink& sink) const {
    const size_t block = format_.block;
    switch (end - begin) {
      case 0:
        add_terms(block, blocks_, sink, first);
        return 0;
      case 1:
        add_terms(block, blocks_, sink, first, wire(begin));
        return 1;
      default:
        add_terms(block, blocks_, sink, first, wire(begin), wire(begin + 1));
        return 2;
    }
  }

  const BlockFormat& format_;
  const CombineArgs& args_;
  size_t first_;
  size_t blocks_;
  float* tile_;
};

template <int kBits, class Format, bool kAdds>
HWY_INLINE void combine_to_values(const BlockFormat& format, const CombineArgs& args) {
  HWY_ALIGN float tile[kGroupValues];
  const VectorFinish finish(args.finish);
  const size_t whole = args.count / format.block;
  const size_t step = group_blocks(format);
  for (size_t b = 0; b < whole; b += step) {
    const GroupSum<kBits, Format, kAdds> sum(format, args, b, std::min(step, whole - b), tile);
    sum.to(ValuesSink<Format>(
        static_cast<std::byte*>(args.values_out) + b * format.block * Format::kBytes, finish));
  }
}

template <int kBits, class Format, bool kAdds>
HWY_INLINE void combine_to_wire(const BlockFormat& format, const CombineArgs& args) {
  const VectorFinish finish(args.finish);
  const size_t whole = args.count / format.block;
  const size_t step = group_blocks(format);
  GroupEncoder<kBits, Format> encoder(format, args.slice_count, first_slice_block(format, args),
                                      args.wire_out, static_cast<std::byte*>(args.values_out));
  for (size_t b = 0; b < whole; b += step) {
    Group& group = encoder.next();
    group.first = b;
    group.blocks = std::min(step, whole - b);
    group.values = group.tile;
    const GroupSum<kBits, Format, kAdds> sum(format, args, b, group.blocks, group.tile);
    sum.to(MaximaSink(group.tile, group.scales.maxima, finish));
    clear_maxima(group.blocks, group.scales);
    encoder.push();
  }
  encoder.finish();
}

template <int kBits, class Format, bool kAdds>
HWY_NOINLINE void combine_whole_blocks(const BlockFormat& format, const CombineArgs& args) {
  if (args.wire_out == nullptr) {
    combine_to_values<kBits, Format, kAdds>(format, args);
  } else {
    combine_to_wire<kBits, Format, kAdds>(format, args);
  }
}

template <int kBits, class Format>
HWY_NOINLINE void combine_slice(const BlockFormat& format, const CombineArgs& args) {
  if (args.own != nullptr && args.added.is_any()) {
    combine_whole_blocks<kBits, Format, true>(format, args);
  } else {
    combine_whole_blocks<kBits, Format, false>(format, args);
  }
  const size_t whole = args.count / format.block;
  if (whole * format.block < args.count) combine_slice_block(format, args, whole);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_BLOCK_COMBINE_INL_H_
