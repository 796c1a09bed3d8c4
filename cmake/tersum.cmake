# What every folder's CMakeLists.txt is written with:
#
#   tersum_library(NAME SOURCES… [DEPS…] [PUBLIC_DEPS…] [EXCEPTIONS])
#   tersum_test(NAME SOURCES… [DEPS…] [LABELS…] [TIMEOUT seconds] [SHARDS count] [NO_MAIN] [SERIAL])
#   tersum_program(NAME SOURCES… [DEPS…])
#   tersum_bench(NAME SOURCES… [DEPS…] [SMOKE option…])
#   tersum_add_folder_if_present(FOLDER)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# Checks stay on in release (they are TERSUM_CHECK, not assert); -O2 is what the numbers in
# docs/performance.md were measured with.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
# -Og takes a fifth less of the compiler than -O1, and the tests no longer.
set(CMAKE_CXX_FLAGS_SANITIZE "-Og -g1")
set(CMAKE_C_FLAGS_SANITIZE "-Og -g1")

find_program(TERSUM_CCACHE ccache)
if(TERSUM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the build folder in the hash the presets and the Python wheel share their objects.
  # ccache looks into a precompiled header's sources only if it may overlook __TIME__ and defines.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
      "${TERSUM_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

# Flags of every translation unit, tests included. A fused multiply-add would round once where the
# reference rounds twice, and ranks with different CPUs would disagree in the last bit.
add_library(tersum_flags INTERFACE)
target_compile_options(tersum_flags INTERFACE -ffp-contract=off -Wall -Wextra)
# Instrumented code draws warnings about the standard library that are none (GCC says so itself).
if(TERSUM_WARNINGS_AS_ERRORS AND NOT TERSUM_SANITIZE)
  target_compile_options(tersum_flags INTERFACE -Werror)
endif()
if(TERSUM_SANITIZE)
  target_compile_options(tersum_flags INTERFACE -fsanitize=${TERSUM_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tersum_flags INTERFACE -fsanitize=${TERSUM_SANITIZE})
  # These three are a third of GCC's work on the tests: a null pointer faults by itself, and clang
  # makes these checks of all but the kernels in the build of the fuzz targets.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND TERSUM_SANITIZE MATCHES "undefined")
    target_compile_options(tersum_flags INTERFACE -fno-sanitize=null,vptr,pointer-overflow)
  endif()
  # A kernel is one source for all instruction sets, and instrumenting one set takes half a minute.
  # Left out are AVX3_DL, AVX3 and SSSE3 (bits 7, 8 and 12); AVX2, SSE4 and the fallback stay.
  target_compile_definitions(tersum_flags INTERFACE HWY_DISABLED_TARGETS=0x1180)
  if(TERSUM_SANITIZE MATCHES "thread")
    # ThreadSanitizer's shadow layout does not survive 32 bits of address randomization, which
    # newer kernels use; run the tests without it.
    find_program(TERSUM_SETARCH setarch)
    if(TERSUM_SETARCH)
      set(CMAKE_CROSSCOMPILING_EMULATOR "${TERSUM_SETARCH};--addr-no-randomize")
    endif()
  endif()
endif()

if(TERSUM_COVERAGE)
  target_link_options(tersum_flags INTERFACE --coverage)
endif()

set(TERSUM_SOURCE_ROOT "${CMAKE_CURRENT_SOURCE_DIR}/src")

add_custom_target(tersum_all_tests)
add_custom_target(tersum_quick_tests)
add_custom_target(tersum_thread_tests)

function(tersum_add_folder_if_present folder)
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt")
    add_subdirectory("${folder}")
  endif()
endfunction()

# A layer (or a part of one): a static library with the include roots src/ and include/, built
# without exceptions unless EXCEPTIONS is given (only for code that must include throwing headers).
function(tersum_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXCEPTIONS" "" "SOURCES;DEPS;PUBLIC_DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tersum_library(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/include"
                             "${PROJECT_SOURCE_DIR}/src")
  if(NOT arg_EXCEPTIONS)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>)
  endif()
  target_link_libraries(${name} PUBLIC tersum_flags ${arg_DEPS} ${arg_PUBLIC_DEPS})
  # Libraries of tests are no layers.
  cmake_path(IS_PREFIX TERSUM_SOURCE_ROOT "${CMAKE_CURRENT_SOURCE_DIR}" is_layer)
  if(is_layer)
    set_property(GLOBAL APPEND PROPERTY TERSUM_LAYERS ${name})
    if(TERSUM_COVERAGE)
      target_compile_options(${name} PRIVATE --coverage)
    endif()
  endif()
endfunction()

function(tersum_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/include"
                             "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE tersum_flags ${arg_DEPS})
endfunction()

# A benchmark program for scripts/bench. SMOKE: the options that make it run for a moment only; a
# Google Benchmark program needs none.
function(tersum_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;SMOKE")
  tersum_program(${name} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS})
  if(arg_SMOKE)
    list(JOIN arg_SMOKE "\n" lines)
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.smoke" CONTENT "${lines}\n" @ONLY)
  endif()
endfunction()

# GoogleTest and what it includes are most of what a test's compiler reads.
function(tersum_precompile_test_headers name)
  if(NOT TARGET tersum_test_headers)
    # A program as the tests are: what a library is compiled with (-fPIC) would not fit.
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/test_headers.cc" CONTENT "int main() {}\n")
    add_executable(tersum_test_headers EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/test_headers.cc")
    target_link_libraries(tersum_test_headers PRIVATE tersum_flags GTest::gmock)
    target_compile_options(tersum_test_headers PRIVATE $<$<CONFIG:Release>:-O1>)
    target_precompile_headers(tersum_test_headers PRIVATE
      <gtest/gtest.h> <algorithm> <chrono> <functional> <random> <string> <thread> <vector>)
  endif()
  # With a precompiled header GCC 12 no longer sees that such a warning is the standard library's.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE -fpch-preprocess -Wno-array-bounds
                           -Wno-stringop-overflow -Wno-restrict)
  endif()
  target_precompile_headers(${name} REUSE_FROM tersum_test_headers)
endfunction()

# A GoogleTest program, run as one ctest test per shard (a process per test case would cost more
# than the cases). LABELS: quick (seconds; runs under ASan too), threads (has several that
# run at once; if quick it runs under TSan), per_isa, sim, net, e2e.
# A program without a single test fails. SERIAL: nothing else runs beside it (it measures time).
function(tersum_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_MAIN;SERIAL" "TIMEOUT;SHARDS" "SOURCES;DEPS;LABELS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tersum_test(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(TERSUM_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  tersum_program(${name} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS})
  # Compiling a test takes longer than running it; what it tests keeps the library's flags.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  tersum_precompile_test_headers(${name})
  if(arg_NO_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gmock)
  else()
    target_link_libraries(${name} PRIVATE GTest::gmock_main)
  endif()
  add_dependencies(tersum_all_tests ${name})
  if("quick" IN_LIST arg_LABELS)
    add_dependencies(tersum_quick_tests ${name})
    if("threads" IN_LIST arg_LABELS)
      add_dependencies(tersum_thread_tests ${name})
    endif()
  endif()
  set(environment)
  if(TERSUM_SANITIZE)
    list(APPEND environment UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=second_deadlock_stack=1)
  endif()
  math(EXPR last_shard "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last_shard})
    if(arg_SHARDS EQUAL 1)
      set(test ${name})
    else()
      set(test ${name}_${shard})
    endif()
    add_test(NAME ${test} COMMAND ${name} --gtest_brief=0)
    set_tests_properties(${test} PROPERTIES
      LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
      FAIL_REGULAR_EXPRESSION "Running 0 tests from 0 test suites"
      RUN_SERIAL ${arg_SERIAL}
      ENVIRONMENT
        "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard};${environment}")
  endforeach()
endfunction()
