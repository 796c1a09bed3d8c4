// AutoCodecs: among which codecs a call chooses that leaves its codec open.
//
//   "auto"                                  those of tersum's own ladder
//   "auto:int8/128|int6/128+flatten|…"      those that the caller names, in any order
//
// Thread safety: any thread. Invariants: lists are interned and live for ever, as codecs do; the
// order is the same on all ranks and however the list was written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "tersum/status.h"

namespace tersum {

struct AutoCodec {
  std::string spec;              // canonical
  const Codec* codec = nullptr;  // of float32 sums
  // It lays out whole sections of values at once (+sparse, +mixed, +adaptive).
  bool is_sectioned = false;
};

struct AutoCodecs {
  // A message of samples has room for so many.
  static constexpr size_t kMost = 32;

  std::string spec;  // "auto", or "auto:" and the specs in the order below
  // By the wire bits of a contribution, falling; of equal bits the slower one first.
  std::vector<AutoCodec> codecs;
  bool is_named = false;  // by the caller
  bool flattens = false;  // some of them do
};

// Whether a call's codec is open: "auto", or "auto:" and more.
[[nodiscard]] bool is_auto(std::string_view codec);

// kInvalidArgument: an empty list or place, a spec that is none, stands twice, or whose error a
// sample does not show.
Result<const AutoCodecs*> find_auto_codecs(std::string_view codec);

// Bytes of many values as a contribution and as a finished sum of `ranks`, which some codecs give
// more room: what calls of the codec cost.
[[nodiscard]] size_t wire_cost(const AutoCodec& codec, int ranks);

}  // namespace tersum
