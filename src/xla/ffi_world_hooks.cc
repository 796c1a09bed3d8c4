#include "xla/ffi_world_hooks.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/codec_names.h"
#include "runtime/device_world.h"
#include "xla/ffi_auto_codec.h"

namespace tersum::xla_ffi {

namespace {

using World = Result<std::shared_ptr<DeviceWorld>>;

World taught(World world, const WorldSource& source) {
  if (!world.ok()) return world;
  if (!source.flatten_state.empty()) {
    TERSUM_RETURN_IF_ERROR(world.value()->load_flatten(source.flatten_state));
  }
  if (!source.feedback_state.empty()) {
    TERSUM_RETURN_IF_ERROR(world.value()->load_feedback(source.feedback_state));
  }
  return world;
}

}  // namespace

WorldHooks make_world_hooks(WorldSource source) {
  const auto shared = std::make_shared<WorldSource>(std::move(source));
  return {[shared] { return shared->describe(); },
          [shared](const ProcessFacts& facts) -> World {
            return taught(DeviceWorld::create(0, 1, facts.local_devices, nullptr, shared->options,
                                              shared->name + "/local"),
                          *shared);
          },
          [shared](const ProcessFacts& facts) -> World {
            Result<std::shared_ptr<Store>> store = shared->open_store();
            if (!store.ok()) return store.status();
            return taught(
                DeviceWorld::create(facts.process_index, facts.process_count, facts.local_devices,
                                    std::move(store).value(), shared->options, shared->name),
                *shared);
          }};
}

Result<std::string> check_codec(std::string_view spec) {
  const auto allowed = allowed_codecs(spec);
  if (!allowed.ok()) return allowed.status();
  if (allowed.value().has_value()) {
    // The shortest digits that say the same number, and what stands behind "auto".
    const auto [error, codec] = *allowed.value();
    return fmt::format("auto:{}{}", error, codec.substr(std::string_view("auto").size()));
  }
  return canonical_codec(spec);
}

}  // namespace tersum::xla_ffi
