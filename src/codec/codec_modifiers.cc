#include "codec/codec_modifiers.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "codec/kronecker_transforms.h"

namespace tersum {
namespace {

// Scales are measured before anything else is done to the values, but for a transform that needs
// nothing beside the block.
std::string_view refuse_shared(const FormatRow& row) {
  const bool has_one_scale = row.block_min == row.block_max;
  if (row.adds_turned) {
    return has_one_scale ? "ranks share one scale for a whole call; such a format takes hadamard "
                           "and sr alone"
                         : "ranks share the scales of the array's own blocks; such a format takes "
                           "rows, hadamard and sr alone";
  }
  return has_one_scale ? "ranks share one scale for a whole call, of the values as they are; such "
                         "a format takes no modifier"
                       : "ranks share the scales of the values as they are; such a format takes "
                         "rows alone";
}

std::string_view refuse_without_blocks(const FormatRow& row, const PlainSpec& /*spec*/) {
  if (row.shares) return refuse_shared(row);
  return row.rotates ? "" : "the format takes no modifier: it has no blocks to transform";
}

// A number without sign and leading zeros; false if `text` is none, or above `most`.
bool read_number(std::string_view text, uint32_t most, uint32_t& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && text.front() != '0' && number <= most;
}

bool set_feedback(std::string_view parameter, PlainSpec& spec) {
  spec.feedback = true;
  return parameter.empty();
}
bool is_feedback_set(const PlainSpec& spec) { return spec.feedback; }
std::string write_feedback(const PlainSpec& /*spec*/) { return "feedback"; }
// The nearest level is never further off than 0: what is owed cannot grow without end.
std::string_view refuse_feedback(const FormatRow& row, const PlainSpec& spec) {
  if (spec.sr) return "what random rounding loses may grow from call to call";
  if (row.shares) return refuse_shared(row);
  if (spec.shiftadd) return "what an owner's own codes lose inside a sum of codes is not seen";
  return row.rotates ? "" : "the format takes no modifier: it has no blocks";
}

bool set_rows(std::string_view parameter, PlainSpec& spec) {
  return !parameter.empty() && read_number(parameter, kRowMax, spec.rows) && spec.rows >= 2;
}
bool is_rows_set(const PlainSpec& spec) { return spec.rows > 0; }
std::string write_rows(const PlainSpec& spec) { return "rows:" + std::to_string(spec.rows); }
// Of a format without blocks read_spec() drops it: nothing there could belong to two rows.
std::string_view refuse_rows(const FormatRow& row, const PlainSpec& /*spec*/) {
  if (row.shares && row.block_min == row.block_max) {
    return "the format has one scale for a whole call by definition, so that there are no blocks "
           "to keep within rows; sum8 has a scale for each block";
  }
  return "";
}

// "0.2%": digits, and behind a point at most two of them.
bool set_sparse(std::string_view parameter, PlainSpec& spec) {
  if (!parameter.ends_with('%')) return false;
  parameter.remove_suffix(1);
  const size_t point = std::min(parameter.find('.'), parameter.size());
  const std::string_view whole = parameter.substr(0, point);
  const std::string_view part = parameter.substr(std::min(point + 1, parameter.size()));
  const bool has_part = point < parameter.size();
  if (whole.empty() || whole.size() > 2 || part.size() > 2 || has_part == part.empty()) {
    return false;
  }
  if (whole.size() > 1 && whole.front() == '0') return false;
  uint32_t share = 0;
  for (const char digit : std::string(whole) + std::string(part)) {
    if (digit < '0' || digit > '9') return false;
    share = share * 10 + static_cast<uint32_t>(digit - '0');
  }
  for (size_t i = part.size(); i < 2; ++i) share *= 10;
  spec.sparse = static_cast<uint16_t>(share);
  return share > 0 && share <= kSparseMax;
}
bool is_sparse_set(const PlainSpec& spec) { return spec.sparse > 0; }
std::string write_sparse(const PlainSpec& spec) {
  std::string text = "sparse:" + std::to_string(spec.sparse / 100);
  if (spec.sparse % 100 != 0) {
    text += '.';
    text += static_cast<char>('0' + spec.sparse / 10 % 10);
    if (spec.sparse % 10 != 0) text += static_cast<char>('0' + spec.sparse % 10);
  }
  return text + "%";
}

bool set_flatten(std::string_view parameter, PlainSpec& spec) {
  spec.flatten = true;
  return parameter.empty();
}
bool is_flatten_set(const PlainSpec& spec) { return spec.flatten; }
std::string write_flatten(const PlainSpec& /*spec*/) { return "flatten"; }

bool set_hadamard(std::string_view parameter, PlainSpec& spec) {
  spec.hadamard = true;
  return parameter.empty();
}
bool is_hadamard_set(const PlainSpec& spec) { return spec.hadamard; }
std::string write_hadamard(const PlainSpec& /*spec*/) { return "hadamard"; }
std::string_view refuse_hadamard(const FormatRow& row, const PlainSpec& spec) {
  if (spec.flatten) return "flatten contains hadamard; write flatten alone";
  return row.adds_turned ? "" : refuse_without_blocks(row, spec);
}

bool set_kronecker(std::string_view parameter, PlainSpec& spec) {
  if (parameter.empty()) return false;
  const Result<uint16_t> number = find_kronecker_transform(parameter);
  spec.kronecker = number.ok() ? number.value() : uint16_t{0};
  return number.ok();
}
bool is_kronecker_set(const PlainSpec& spec) { return spec.kronecker != 0; }
std::string write_kronecker(const PlainSpec& spec) {
  return "kronecker:" + kronecker_transform(spec.kronecker).name;
}
std::string_view refuse_kronecker(const FormatRow& row, const PlainSpec& spec) {
  if (spec.flatten || spec.hadamard) {
    return "its matrices take the place of hadamard and its diagonal that of flatten; write one";
  }
  if (!row.rotates) return refuse_without_blocks(row, spec);
  const KroneckerTransform& transform = kronecker_transform(spec.kronecker);
  return transform.block() == spec.block ? "" : std::string_view(transform.other_blocks);
}
Status explain_kronecker(std::string_view parameter) {
  return parameter.empty() ? Status() : find_kronecker_transform(parameter).status();
}

bool set_mixed(std::string_view parameter, PlainSpec& spec) {
  spec.mixed = true;
  return parameter.empty();
}
bool is_mixed_set(const PlainSpec& spec) { return spec.mixed; }
std::string write_mixed(const PlainSpec& /*spec*/) { return "mixed"; }
std::string_view refuse_mixed(const FormatRow& row, const PlainSpec& spec) {
  const bool has_neighbours = row.name.size() == 4 && row.name.starts_with("int") &&
                              row.name >= "int3" && row.name <= "int7";
  if (!has_neighbours) return "only int3 to int7 have formats of one bit more and of one less";
  return spec.adaptive ? "mixed pairs blocks of one size, and adaptive makes different ones" : "";
}

bool set_adaptive(std::string_view parameter, PlainSpec& spec) {
  spec.adaptive = true;
  return parameter.empty();
}
bool is_adaptive_set(const PlainSpec& spec) { return spec.adaptive; }
std::string write_adaptive(const PlainSpec& /*spec*/) { return "adaptive"; }
std::string_view refuse_adaptive(const FormatRow& row, const PlainSpec& spec) {
  if (row.shares) return refuse_shared(row);
  if (row.block_min == row.block_max) return "the format has blocks of one size only";
  if (row.name == "int1") return "the scales of int1 are means, which say nothing about outliers";
  if (row.name == "five") return "the codes of five come in groups of 96, which cut small blocks";
  // What they lose is about the largest values, which a scale of two bytes sets on a level.
  if (row.name.starts_with("fp8")) {
    return "levels of fp8 are closer where values are small, which leaves small blocks little to "
           "gain, and scales of a byte cost more";
  }
  if (spec.transforms()) return "a rotation spreads over its block what small blocks would confine";
  if (spec.block == row.block_min) {
    return "blocks of 32 are the smallest already, and have nothing to share out; write 64 or 128";
  }
  // Measured on values of sizes of their own: 1.2 times at 128, 1.5 at 256, 2.1 at 512.
  constexpr uint32_t kLongest = 128;
  return spec.block <= kLongest ? ""
                                : "the bytes of so long blocks buy too few small ones to stay "
                                  "within 1.25 times the error of blocks of 32; write 64 or 128, "
                                  "or sparse, which costs long blocks less";
}

bool set_clip(std::string_view parameter, PlainSpec& spec) {
  spec.clip = true;
  return parameter == "learned";
}
bool is_clip_set(const PlainSpec& spec) { return spec.clip; }
std::string write_clip(const PlainSpec& /*spec*/) { return "clip:learned"; }
std::string_view refuse_clip(const FormatRow& row, const PlainSpec& spec) {
  if (row.shares) return refuse_shared(row);
  const bool integers = row.name.starts_with("int") && row.name != "int1";
  if (!integers) return "only int2 to int8 have evenly spaced levels for a clip to stretch";
  if (spec.feedback) return "what a clip cuts off every call would be owed without end";
  if (spec.rows > 0) {
    return "a clip is one scale for the whole array by definition, so that there are no blocks to "
           "keep within rows";
  }
  if (spec.sparse > 0) return "sparse sends apart what a clip would cut off; write one of the two";
  if (spec.mixed || spec.adaptive) {
    return "mixed and adaptive choose bits and blocks by the scales that a clip replaces";
  }
  if (spec.shiftadd) return "a learned clip is no power of two";
  return spec.sr ? "values beyond the clip have no level above them" : "";
}

bool set_shiftadd(std::string_view parameter, PlainSpec& spec) {
  spec.shiftadd = true;
  return parameter.empty();
}
bool is_shiftadd_set(const PlainSpec& spec) { return spec.shiftadd; }
std::string write_shiftadd(const PlainSpec& /*spec*/) { return "shiftadd"; }
std::string_view refuse_shiftadd(const FormatRow& row, const PlainSpec& spec) {
  const bool integers = row.name.starts_with("int") && row.name != "int1";
  if (!integers && row.name != "mxint8") return "only int2 to int8 and mxint8 are sums of integers";
  if (spec.sparse > 0) return "outliers are added as floats, whose sum depends on the order";
  if (spec.mixed || spec.adaptive)
    return "blocks that differ from rank to rank are added as floats";
  if (spec.sr) return "the owner's part and the sum would be rounded by the same random numbers";
  return "";
}

bool set_floor(std::string_view parameter, PlainSpec& spec) {
  spec.floor = true;
  return parameter.empty();
}
bool is_floor_set(const PlainSpec& spec) { return spec.floor; }
std::string write_floor(const PlainSpec& /*spec*/) { return "floor"; }

bool set_hops(std::string_view parameter, PlainSpec& spec) {
  spec.hops = true;
  return parameter.empty();
}
bool is_hops_set(const PlainSpec& spec) { return spec.hops; }
std::string write_hops(const PlainSpec& /*spec*/) { return "hops"; }

bool set_sr(std::string_view parameter, PlainSpec& spec) {
  spec.sr = true;
  return parameter.empty();
}
bool is_sr_set(const PlainSpec& spec) { return spec.sr; }
std::string write_sr(const PlainSpec& /*spec*/) { return "sr"; }
// Without bias are only values that have a level on either side.
std::string_view refuse_sr(const FormatRow& row, const PlainSpec& spec) {
  if (row.name == "int1") return "values beyond the block's mean have no level above them";
  if (row.name == "table") return "a table's levels need not reach a block's largest magnitude";
  if (row.name == "nvfp4" || spec.floor) {
    return "scales that are not rounded up leave values beyond the last level";
  }
  if (row.name == "sum:exp") return "the format is rounded at random as it is";
  if (row.name == "lut2") {
    return "of two neighbouring codes its table takes the first, however they came about, so that "
           "sums would be biased all the same; sum8 takes sr";
  }
  if (spec.mixed || spec.adaptive) return "mixed and adaptive judge blocks by nearest rounding";
  return row.rotates || row.shares ? "" : "the format takes no modifier: it has no blocks";
}

bool set_nearest(std::string_view parameter, PlainSpec& spec) {
  spec.nearest = true;
  return parameter.empty();
}
bool is_nearest_set(const PlainSpec& spec) { return spec.nearest; }
std::string write_nearest(const PlainSpec& /*spec*/) { return "nearest"; }
std::string_view refuse_nearest(const FormatRow& row, const PlainSpec& spec) {
  if (row.name == "sum:exp") return "the format is rounded at random as it is";
  return spec.sr ? "sr rounds at random what nearest would round to the nearest; write one of them"
                 : "";
}

// Of both.
std::string_view refuse_without_powers(const FormatRow& row, const PlainSpec& spec) {
  return row.name.starts_with("mx") || spec.shiftadd
             ? ""
             : "only the MX formats and shiftadd have scales that are powers of two";
}

constexpr std::array kModifiers = {
    ModifierRow{"feedback", "feedback", set_feedback, is_feedback_set, write_feedback,
                refuse_feedback},
    ModifierRow{"rows", "rows:N, N from 2 to 65536", set_rows, is_rows_set, write_rows, refuse_rows,
                nullptr, true},
    ModifierRow{"sparse", "sparse:P%, P from 0.01 to 10 in steps of 0.01", set_sparse,
                is_sparse_set, write_sparse, refuse_without_blocks, nullptr, true},
    ModifierRow{"flatten", "flatten", set_flatten, is_flatten_set, write_flatten,
                refuse_without_blocks},
    ModifierRow{"hadamard", "hadamard", set_hadamard, is_hadamard_set, write_hadamard,
                refuse_hadamard},
    ModifierRow{"kronecker", "kronecker:FILE or kronecker:DIGEST", set_kronecker, is_kronecker_set,
                write_kronecker, refuse_kronecker, explain_kronecker},
    ModifierRow{"mixed", "mixed", set_mixed, is_mixed_set, write_mixed, refuse_mixed},
    ModifierRow{"adaptive", "adaptive", set_adaptive, is_adaptive_set, write_adaptive,
                refuse_adaptive},
    ModifierRow{"clip", "clip:learned", set_clip, is_clip_set, write_clip, refuse_clip},
    ModifierRow{"shiftadd", "shiftadd", set_shiftadd, is_shiftadd_set, write_shiftadd,
                refuse_shiftadd},
    ModifierRow{"floor", "floor", set_floor, is_floor_set, write_floor, refuse_without_powers},
    ModifierRow{"hops", "hops", set_hops, is_hops_set, write_hops, refuse_without_powers},
    ModifierRow{"sr", "sr", set_sr, is_sr_set, write_sr, refuse_sr},
    ModifierRow{"nearest", "nearest", set_nearest, is_nearest_set, write_nearest, refuse_nearest,
                nullptr, true},
};

}  // namespace

std::span<const ModifierRow> modifier_rows() { return kModifiers; }

const ModifierRow* find_modifier(std::string_view name) {
  for (const ModifierRow& row : kModifiers) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace tersum
