// Codec: a wire format for numbers. Pure functions on spans; no state, no idea who sends what.
//
// Thread safety: codecs are immutable; any thread. Invariants: for one spec and one value type
// every function gives the same bits on every CPU target (see kernels/), so all ranks that decode
// the same wire hold the same values. Sums run in float32 (float64 for float64, the integer type
// for integers) in the order of the arguments, without fused multiply-add.
//
// A *slice* is a run of values coded by one call. A slice that starts at a multiple of
// `block()` values from the start of its chunk has the same blocks however the chunk is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "codec/kernels/added_terms.h"
#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

// A parsed codec spec: base format, block, and modifiers: "int4/32+hadamard".
struct CodecSpec {
  std::string base;                    // a name of format_registry.h: "exact", "int6", "mxfp8:e4m3"
  uint32_t block = 0;                  // 0 for formats without blocks
  std::vector<std::string> modifiers;  // in the order in which they are applied

  [[nodiscard]] std::string to_string() const;  // canonical: "int8/128"
  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// kInvalidArgument names what is wrong and what would be allowed.
Result<CodecSpec> parse_codec_spec(std::string_view text);

// How a combine ends: the sum as it is, or divided by `divisor` (an average over that many ranks).
struct CombineFinish {
  ReduceOp op = ReduceOp::kSum;
  uint32_t divisor = 1;  // > 1 only for kAverage, at the last combine of a chunk
  // What is encoded takes the format of gathered() for so many ranks.
  uint32_t gathered_ranks = 1;
};

// Per-channel factors of +flatten, borrowed: channel c of a value is its index in the array modulo
// `channels`. Each array holds one period and kFactorTail values of the next, so that a tile can be
// read from any phase.
struct ChannelFactors {
  const float* forward = nullptr;  // at most 1
  const float* undo = nullptr;
  size_t channels = 1;
  double undo_max = 1;
};
inline constexpr size_t kFactorTail = 4096;

// What a call knows of +clip:learned, the same on all ranks: the largest magnitudes that are worth
// coding, 0 where there is none yet.
struct ClipFactors {
  float contribution = 0;
  float sum = 0;  // of finished sums, as they are coded: of an average, divided
  uint32_t ranks = 1;
};
struct ClipMeasure;

// What is to be learned of the sums of a codec that learns levels.
struct LevelLesson {
  uint32_t levels = 0;  // how many: 2, 4, 8 or 16
  uint32_t block = 0;   // values under one scale, the largest magnitude of which is 1 there
  uint32_t rows = 0;    // blocks begin anew every so many values; 0: they do not
};

// Where a slice lies in its array, and what its call knows.
struct SlicePlace {
  size_t first = 0;                         // the slice's first value in the array
  const ChannelFactors* factors = nullptr;  // of the channels; null: nothing; equal on all ranks
  uint64_t rounding = 0;                    // key of the random numbers of +sr; each rank's own
  // Of +feedback: what codings have lost of each value of the array, which encode() and combine()
  // add and bring up to date; null: nothing is kept. Each rank's own.
  float* owed = nullptr;
  AddedTerms added = {};  // to what encode and combine read of values and `own`
  // Of a codec of SharedSums: the slice's scales, which all ranks share (bf16 bits), and what
  // decoded sums are divided by, which travel as they are.
  const uint16_t* scales = nullptr;
  uint32_t divisor = 1;
  // Of a call that learns a clip; null: its reports are empty. Those of held() need one.
  const ClipFactors* clips = nullptr;
  ClipMeasure* measure = nullptr;  // of one coding, for the codec inside of +clip:learned
  // Of a codec that takes pairs, how many contributions each of the wires that combine() gets
  // holds; null: one.
  const uint16_t* held = nullptr;
};

// Values begin..begin+part-1 of a slice of `count`: whole blocks, or blocks up to the slice's end.
struct SliceCut {
  size_t count = 0;
  size_t begin = 0;
  size_t part = 0;

  void check(size_t block) const {
    TERSUM_CHECK(begin % block == 0 && begin + part <= count);
    TERSUM_CHECK(part % block == 0 || begin + part == count);
  }
};

class OutlierPlaces;
class SharedSums;
struct ElementFormat;
struct TileTransform;

class Codec {
 public:
  virtual ~Codec() = default;

  [[nodiscard]] virtual const CodecSpec& spec() const = 0;
  [[nodiscard]] virtual DataType value_type() const = 0;
  // Slices are cut at multiples of this: whole blocks (and whole groups of packed codes); 1 for
  // formats without blocks.
  [[nodiscard]] virtual uint32_t block() const = 0;
  // True when decode(encode(x)) == x for every x.
  [[nodiscard]] virtual bool lossless() const = 0;
  // True when a slice's wire is the bytes of its values, as they lie in memory.
  [[nodiscard]] virtual bool wire_is_values() const { return false; }
  // True when a slice may also be coded part by part, with the bits of the whole: encode_part() and
  // combine_part() are there, and sums travel as contributions do.
  [[nodiscard]] virtual bool takes_parts() const { return false; }
  // Bytes of a slice of `count` values. Additive over slices cut at multiples of block(), but for
  // what some formats have once a slice.
  [[nodiscard]] virtual size_t wire_bytes(size_t count) const = 0;

  // False where a partial sum must not be coded again at every hop of a ring. With a power-of-two
  // scale, which does not move from hop to hop, partial sums round back to what they were: 16 ranks
  // with equal tensors get 3 to 7 times the error of one coding.
  [[nodiscard]] virtual bool takes_hops() const { return true; }
  // True for a codec that uses SlicePlace::factors; others ignore them.
  [[nodiscard]] virtual bool flattens() const { return false; }
  // True for a codec that uses SlicePlace::rounding, when it encodes.
  [[nodiscard]] virtual bool is_random() const { return false; }
  // True for a codec that uses SlicePlace::owed.
  [[nodiscard]] virtual bool feeds_back() const { return false; }

  // The codec of calls whose clip is learned and trusted, in place of this one; null: it learns
  // none. Its wires end as this one's do, in a report (clip_report.h). Borrowed.
  [[nodiscard]] virtual const Codec* held() const { return nullptr; }

  // Of one whose levels a call site learns from its first sum, what; null: none. Borrowed.
  [[nodiscard]] virtual const LevelLesson* lesson() const { return nullptr; }
  // Then: the codec of calls with the levels of that table (level_tables.h), in place of this one.
  // Blocks lie where they do here.
  [[nodiscard]] virtual const Codec& taught(uint16_t /*table*/) const { return *this; }

  // True where combine() quantizes `own`, too, so that the sum does not depend on which rank takes
  // it, nor, unless SharedSums says otherwise, on the order of the contributions.
  [[nodiscard]] virtual bool quantizes_own() const { return false; }

  // How ranks sum with it that agree on scales before; null: they need not agree. Borrowed.
  [[nodiscard]] virtual const SharedSums* shared_sums() const { return nullptr; }

  // What its slices are, for one that puts blocks together itself; null: not to be described so.
  // Borrowed.
  [[nodiscard]] virtual const ElementFormat* element_format() const { return nullptr; }
  // For the same one: what blocks go through before they are coded; left as it is where nothing is.
  virtual void put_transform(const SlicePlace& /*place*/, TileTransform& /*transform*/) const {}

  // The codec of finished sums of `ranks` contributions, which some formats give more room than a
  // contribution. It decodes them; combine() writes them where finish.gathered_ranks says so.
  [[nodiscard]] virtual const Codec& gathered(uint32_t /*ranks*/) const { return *this; }

  // values[count] -> wire[wire_bytes(count)].
  virtual void encode(const void* values, size_t count, std::byte* wire,
                      const SlicePlace& place = {}) const = 0;
  // wire[wire_bytes(count)] -> values[count].
  virtual void decode(const std::byte* wire, size_t count, void* values,
                      const SlicePlace& place = {}) const = 0;

  // Part of a slice: the bits that decode() gives it. Wire and `place` are the whole slice's;
  // values begin with the part's first.
  virtual void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                           const SlicePlace& place = {}) const = 0;
  // As much of a codec that takes_parts(), in a slice of whole blocks: encode() and combine(). By
  // `place` nothing is added; `own` and `values_out` begin with the part's first, too.
  virtual void encode_part(const void* values, const SliceCut& cut, std::byte* wire,
                           const SlicePlace& place = {}) const;
  virtual void combine_part(std::span<const std::byte* const> wires, const void* own,
                            size_t own_index, const SliceCut& cut, const CombineFinish& finish,
                            std::byte* wire_out, void* values_out,
                            const SlicePlace& place = {}) const;
  // How many values decode_part() had best be asked for at once by who copies them on: these stay
  // in L1.
  [[nodiscard]] virtual size_t part_values() const { return 4096; }

  // As decode(), each line written without being read first; stream_fence() is the caller's. False,
  // and nothing is written: there is no kernel for that.
  virtual bool stream(const std::byte* /*wire*/, size_t /*count*/, void* /*values*/) const {
    return false;
  }

  // Marks which values of the slice `wire` holds apart, `first` being the slice's first value in
  // the array. Of what gathered() names, so that of a contribution gathered(1) tells.
  virtual void mark_outliers(const std::byte* /*wire*/, size_t /*count*/, size_t /*first*/,
                             OutlierPlaces& /*places*/) const {}

  // kInvalidArgument, naming the block or the value, for bytes that no encoder writes. They decode
  // all the same, to NaN or to a number, on every rank alike.
  [[nodiscard]] virtual Status check_wire(const std::byte* /*wire*/, size_t /*count*/) const {
    return {};
  }

  // The sum (or maximum, minimum) of the contributions `wires[0..]` and, when `own` is not null, of
  // own[count] inserted as contribution number `own_index` (0..wires.size()), in that order:
  // accumulated in float32, then divided by finish.divisor.
  //   `wire_out` not null: the result is encoded there, by gathered(finish.gathered_ranks); and
  //   when `values_out` is not null too, it gets the decoding of those very bytes. `wire_out` null:
  //   `values_out` gets the result itself, rounded to the value type.
  // `values_out` may be `own`. At least one contribution in all. Any number of wires.
  virtual void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
                       size_t count, const CombineFinish& finish, std::byte* wire_out,
                       void* values_out, const SlicePlace& place = {}) const = 0;

  // Bound on |decode(encode(x)) - x| for every x of a block whose largest magnitude is `absmax`
  // (finite), in exact arithmetic of the values.
  [[nodiscard]] virtual double block_error_bound(double absmax) const = 0;
};

// The codec for a spec and a value type. For a lossy spec and a value type or operation that it
// cannot serve (integers, float64, max, min) this is the exact codec: the exact path. The object
// lives for ever (codecs are interned); calls after the first for one (spec, type) do not allocate.
Result<const Codec*> find_codec(std::string_view spec, DataType type, ReduceOp op);

}  // namespace tersum
