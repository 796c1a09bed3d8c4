// The typed FFI handlers that rewritten programs call: "tersum_all_reduce",
// "tersum_reduce_scatter".
//
// Thread safety: XLA calls them from any thread. Invariants: they return ffi::Future, never block
// and never take the GIL; the buffers of a call are untouched once its future is fulfilled.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tersum::xla_ffi {

struct HandlerEntry {
  std::string_view target;  // the custom call target's name
  void* handler = nullptr;  // XLA_FFI_Handler*
};

[[nodiscard]] std::span<const HandlerEntry> handler_table();

// The version of XLA's FFI these handlers were compiled against.
[[nodiscard]] std::string_view ffi_api_version();

}  // namespace tersum::xla_ffi
