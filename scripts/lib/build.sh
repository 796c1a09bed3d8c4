# CMake builds by preset.

# strict_options PREFIX: the definition that makes warnings errors, after PREFIX, where the compiler
# is the one that tersum is developed with (another version's new warnings must not stop a user).
strict_options() {
  if [ "$(c++ -dumpversion)" = 12 ]; then
    echo "${1}TERSUM_WARNINGS_AS_ERRORS=ON"
  fi
}

# build_preset PRESET [TARGET…]
build_preset() {
  local preset=$1
  shift
  local -a options=() targets=()
  mapfile -t options < <(strict_options -D)
  [ $# -eq 0 ] || targets=(--target "$@")
  say "Building preset $preset"
  mkdir -p "build/$preset"
  cmake --preset "$preset" --no-warn-unused-cli \
    -DPython_EXECUTABLE="$venv/bin/python" "${options[@]}" \
    >"build/$preset/configure.log" || {
    cat "build/$preset/configure.log"
    fail "configuring preset $preset failed"
  }
  cmake --build "build/$preset" -j "$jobs" "${targets[@]}"
}

# test_preset PRESET [CTEST OPTION…]: runs its tests and lists what was skipped, and why.
test_preset() {
  local preset=$1
  shift
  say "Testing preset $preset"
  mkdir -p build/reports
  ctest --preset "$preset" -j "$jobs" --output-junit "$root/build/reports/ctest-$preset.xml" "$@"
  list_skipped "build/$preset/Testing/Temporary/LastTest.log"
}

# GoogleTest says "Skipped" and the reason on the lines before "[  SKIPPED ]"; ctest hides them.
list_skipped() {
  local log=$1 count
  count=$(grep -c '^\[  SKIPPED \] .*ms)$' "$log" || true)
  [ "${count:-0}" -gt 0 ] || return 0
  echo "$count test cases were skipped:"
  grep -B 3 '^\[  SKIPPED \] .*ms)$' "$log" | grep -vE '^(--|\[|.*: Skipped$|$)' | sort | uniq -c
}

# forget_coverage PRESET: counters of an earlier run would be added up with the next one's.
forget_coverage() { find "build/$1" -name '*.gcda' -delete; }

# print_coverage PRESET: which share of the lines of src/ the tests ran since. A report, not a gate.
print_coverage() { "$venv/bin/python" scripts/lib/coverage_summary.py "build/$1"; }
