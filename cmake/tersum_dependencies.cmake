# The packages tersum is built from; docs/dependencies.md says why each. All are Debian 12 packages.
# Targets: Threads::Threads, hwy::hwy, tersum_xxhash, tersum_fmt, tersum_protozero,
# tersum_nlohmann_json, and for tests GTest::*, rapidcheck, rapidcheck_gtest; for benchmarks
# benchmark::benchmark.
find_package(Threads REQUIRED)
find_package(hwy 1.0.3 REQUIRED)

# Inlined, so that whoever links tersum needs no libxxhash.
find_path(TERSUM_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(tersum_xxhash INTERFACE)
target_include_directories(tersum_xxhash SYSTEM INTERFACE "${TERSUM_XXHASH_INCLUDE}")
target_compile_definitions(tersum_xxhash INTERFACE XXH_INLINE_ALL=)

# Header-only, so that no version of fmt appears in tersum's binary interface; it throws nothing
# when exceptions are off.
find_path(TERSUM_FMT_INCLUDE fmt/core.h REQUIRED)
add_library(tersum_fmt INTERFACE)
target_include_directories(tersum_fmt SYSTEM INTERFACE "${TERSUM_FMT_INCLUDE}")
target_compile_definitions(tersum_fmt INTERFACE FMT_HEADER_ONLY=1)

# Header-only; its event parser throws nothing.
find_path(TERSUM_NLOHMANN_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
add_library(tersum_nlohmann_json INTERFACE)
target_include_directories(tersum_nlohmann_json SYSTEM INTERFACE "${TERSUM_NLOHMANN_JSON_INCLUDE}")

find_path(TERSUM_PROTOZERO_INCLUDE protozero/pbf_reader.hpp)
if(TERSUM_PROTOZERO_INCLUDE)
  add_library(tersum_protozero INTERFACE)
  target_include_directories(tersum_protozero SYSTEM INTERFACE "${TERSUM_PROTOZERO_INCLUDE}")
endif()

# XLA's FFI headers come with the installed jaxlib: TERSUM_JAX_INCLUDE_DIR, empty where there is no
# jax. The interpreter is .venv's if there is one (scripts/lib/venv.sh), or Python_EXECUTABLE.
if(NOT DEFINED TERSUM_JAX_INCLUDE_DIR)
  set(python_candidates "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/.venv/bin/python" python3)
  foreach(python IN LISTS python_candidates)
    if(python)
      execute_process(
        COMMAND "${python}" -c
                "import jaxlib, pathlib; print(pathlib.Path(jaxlib.__file__).parent / 'include')"
        OUTPUT_VARIABLE jax_include OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
        RESULT_VARIABLE jax_failed)
      if(jax_failed EQUAL 0 AND EXISTS "${jax_include}/xla/ffi/api/ffi.h")
        set(TERSUM_JAX_INCLUDE_DIR "${jax_include}" CACHE PATH "Where xla/ffi/api/ffi.h is found")
        break()
      endif()
    endif()
  endforeach()
endif()
if(TERSUM_JAX_INCLUDE_DIR)
  add_library(tersum_jax_headers INTERFACE)
  target_include_directories(tersum_jax_headers SYSTEM INTERFACE "${TERSUM_JAX_INCLUDE_DIR}")
endif()

if(TERSUM_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
if(TERSUM_BUILD_BENCH)
  find_package(benchmark REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
endif()
