// FlattenSites: what +flatten, +clip:learned and kmeans have learned, for every call site of one
// member.
//
// A *site* is a place in a program that calls again and again with arrays of the same channels, or
// of the same length: a name or a key of the caller's. Calls of one site run one after the other,
// in the order in which they started, because each needs what the one before has learned; others
// run beside them.
//
// Thread safety: the progress role's holder only. Invariants: a site's state changes only when its
// front call ends well, on every rank alike; the front call has entered its site until it leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codec/channel_state.h"
#include "codec/learned_clip.h"
#include "codec/learned_levels.h"
#include "tersum/data_type.h"
#include "tersum/status.h"

namespace tersum {

class Operation;

// A site's calls in their order; the front one runs.
struct SiteLine {
  void enter(const Operation* operation) { line.push_back(operation); }
  void leave(const Operation* operation);
  [[nodiscard]] bool holds(const Operation* operation) const { return line.front() == operation; }

  std::vector<const Operation*> line;
};

struct FlattenSite : SiteLine {
  explicit FlattenSite(size_t channels) : state(channels) {}

  ChannelState state;
};

struct ClipSite : SiteLine {
  LearnedClip state;
};

struct LevelsSite : SiteLine {
  LearnedLevels state;
};

// Why states cannot be read or changed now.
Status learning_in_flight();

class FlattenSites {
 public:
  // Sites beyond that are not kept: their calls do with Hadamard alone. One of 4,096 channels takes
  // 110 KiB.
  static constexpr size_t kSitesMax = 16 * 1024;

  // Every how many calls a site's state is brought up to date. Before the first call.
  void set_every(uint32_t every) { every_ = every; }
  [[nodiscard]] uint32_t every() const { return every_; }

  // Null if there is no more room.
  FlattenSite* find_or_make(uint64_t site, size_t channels);
  // What the site knows of its channels now, as a copy; null: nothing.
  [[nodiscard]] std::unique_ptr<const ChannelState> copy_channels(uint64_t site,
                                                                  size_t channels) const;
  // `call`: a digest of what calls have in common that learn one clip. Null if there is no more
  // room: such calls have the scales of blocks.
  ClipSite* find_or_make_clip(uint64_t site, uint64_t call);

  // `codec`: a digest of the spec. Null if there is no more room: such calls learn no levels.
  LevelsSite* find_or_make_levels(uint64_t site, uint64_t codec);

  // kInvalidArgument while a call is in flight that learns.
  [[nodiscard]] Status check_idle() const;
  // Of `site`, or of all. kInvalidArgument while a call is in flight there: nothing has changed.
  Status reset(std::optional<uint64_t> site);
  // All states, as docs/wire-format.md says; kInvalidArgument while a call is in flight.
  [[nodiscard]] Result<std::vector<std::byte>> save() const;
  // Puts saved states in place of those of the same sites. kInvalidArgument: a call is in flight,
  // the bytes are none of save(), or there is no room for so many sites; nothing has changed.
  Status load(std::span<const std::byte> saved);

 private:
  using Key = std::pair<uint64_t, size_t>;        // site, channels
  using CallKey = std::pair<uint64_t, uint64_t>;  // site, digest of its calls
  struct Loaded {
    std::map<Key, FlattenSite> sites;
    std::map<CallKey, ClipSite> clips;
    std::map<CallKey, LevelsSite> levels;
  };

  // kInvalidArgument: `saved` is not what save() gives.
  static Result<Loaded> read(std::span<const std::byte> saved);
  [[nodiscard]] bool has_room(const Loaded& loaded) const;
  Status put(Loaded loaded);

  uint32_t every_ = 1;
  std::map<Key, FlattenSite> sites_;
  std::map<CallKey, ClipSite> clips_;
  std::map<CallKey, LevelsSite> levels_;
};

}  // namespace tersum
