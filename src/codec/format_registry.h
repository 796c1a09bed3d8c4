// The table of all wire formats and the modifiers that may be put on them.
//
// Thread safety: pure functions over constant tables. A new format is its file, its kernel (if no
// family of element_format.h has it) and a row of format_registry.cc.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "codec/codec.h"

namespace tersum {

// What a spec says, in normal form.
struct PlainSpec {
  uint8_t format = 0;      // row of the registry; 0 is exact
  uint16_t table = 0;      // of level_tables.h; 0 but for kTableFormat
  uint32_t block = 0;      // 0 for formats without blocks
  bool flatten = false;    // known channels divided by their size, then as with hadamard
  bool hadamard = false;   // a Hadamard transform of each block before the base format
  uint16_t kronecker = 0;  // of kronecker_transforms.h; 0: none
  uint16_t sparse = 0;     // outliers sent beside the rest, in kSparseWhole-ths of the values
  bool mixed = false;      // blocks of one bit more and of one less
  bool adaptive = false;   // blocks of different sizes, for the bytes of equal ones
  bool clip = false;       // one scale a slice, learned from call to call
  uint32_t rows = 0;       // values of a row that is coded as a slice of its own; 0: none

  bool feedback = false;  // what coding loses is added to the next call
  bool sr = false;        // values are rounded at random, without bias
  bool shiftadd = false;  // integers under powers of two, added up as integers
  bool floor = false;     // scales by the floor rule of OCP MX instead of rounded up
  bool hops = false;      // may be coded again at every hop where that is refused otherwise
  bool nearest = false;   // the default was spelled out; never in normal form

  [[nodiscard]] bool transforms() const { return flatten || hadamard || kronecker != 0; }
  friend auto operator<=>(const PlainSpec&, const PlainSpec&) = default;
};

inline constexpr uint32_t kSparseWhole = 10'000;  // 0.01 %
inline constexpr uint32_t kSparseMax = 1'000;     // 10 %
inline constexpr uint32_t kRowMax = 65'536;

struct FormatRow {
  std::string_view name;
  uint32_t default_block = 0;  // 0: no blocks
  uint32_t block_min = 0;
  uint32_t block_max = 0;
  bool rotates = false;  // takes modifiers
  // `type` is one of those that a lossy codec serves, or any for exact.
  std::unique_ptr<Codec> (*make)(const PlainSpec& spec, DataType type) = nullptr;
  bool shares = false;         // ranks agree on scales before a sum (shared_sums.h)
  uint8_t learned_levels = 0;  // of a row of learned_rows()
  bool adds_turned = false;    // shares, and its sums may be those of transformed values

  [[nodiscard]] constexpr bool has_blocks() const { return default_block != 0; }
};

// All formats that their names alone call up. Row 0 is exact.
std::span<const FormatRow> format_rows();
// Row of PlainSpec::format for "table:…", behind them.
extern const uint8_t kTableFormat;
// Those of levels that calls learn, "kmeans:16", behind that one. They have no `make` of their own:
// kmeans_codec.h puts them together.
std::span<const FormatRow> learned_rows();
const FormatRow& format_row(const PlainSpec& spec);
// The number of the row that the full name calls up, also of learned_rows(); empty if none is.
std::optional<uint8_t> find_format_row(std::string_view name);

// Another name of a format: "mxfp8" for "mxfp8:e4m3", "shiftadd" for "int8". The name itself if
// there is none.
std::string_view full_format_name(std::string_view name);

// The modifier that the name stands for beside its format ("shiftadd"); empty for most names.
std::string_view implied_modifier(std::string_view name);

// What `spec` says, in the form of texts.
CodecSpec describe_spec(const PlainSpec& spec);

inline constexpr uint32_t kDefaultBlock = 128;

}  // namespace tersum
