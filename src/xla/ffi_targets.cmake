# The typed FFI handlers. Everything but ffi_handlers.cc is free of XLA's headers and tested without
# them.
tersum_library(tersum_xla_ffi_core
  SOURCES ffi_auto_codec.cc ffi_call_key.cc ffi_call_recorder.cc ffi_completer.cc ffi_invocation.cc
          ffi_world_gate.cc ffi_world_hooks.cc
  DEPS tersum_runtime tersum_base tersum_xxhash tersum_fmt Threads::Threads)

if(TARGET tersum_jax_headers)
  tersum_library(tersum_xla_ffi
    SOURCES ffi_handlers.cc
    DEPS tersum_xla_ffi_core tersum_jax_headers)
endif()
