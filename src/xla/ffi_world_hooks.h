// The hooks that make real device worlds, from what the Python side knows.
//
// Thread safety: the hooks run on the gate's thread, one at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/options.h"
#include "tersum/status.h"
#include "tersum/store.h"
#include "xla/ffi_world_gate.h"

namespace tersum::xla_ffi {

struct WorldSource {
  std::function<Result<ProcessFacts>()> describe;
  // The store in which all processes meet; called only when there are several.
  std::function<Result<std::shared_ptr<Store>>()> open_store;
  CommunicatorOptions options;
  // New in the store, and the same in all processes.
  std::string name;
  // What DeviceWorld::save_flatten() gave; empty: worlds begin with nothing learned.
  std::vector<std::byte> flatten_state;
  // What save_feedback() gave in this process; empty: nothing is owed.
  std::vector<std::byte> feedback_state;
};

[[nodiscard]] WorldHooks make_world_hooks(WorldSource source);

// The canonical form of a codec spec, or of "auto:E[:LIST]"; kInvalidArgument says what would be
// allowed.
Result<std::string> check_codec(std::string_view spec);

}  // namespace tersum::xla_ffi
