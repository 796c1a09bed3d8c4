# clang-tidy over the translation units of the release build. A unit that was clean is not analysed
# again until it, any header, or the configuration changes.

run_clang_tidy() {
  local state=build/lint shared unit count
  # compile_commands.json is all that is needed from the build; nothing is compiled.
  mkdir -p build/release "$state"
  cmake --preset release --no-warn-unused-cli -DPython_EXECUTABLE="$venv/bin/python" \
    >"$state/configure.log" ||
    fail "configuring failed; see $state/configure.log"
  shared=$(git ls-files -z -- '*.h' | xargs -0 sha256sum .clang-tidy "$requirements/test.txt" |
    sha256sum | cut -c 1-32)
  : >"$state/todo"
  for unit in $(git ls-files -- 'src/*.cc' 'tools/*.cc'); do
    grep -qF "/$unit\"" build/release/compile_commands.json || continue
    stamp_matches "$state/${unit//\//@}" "$(unit_hash "$shared" "$unit")" ||
      echo "$unit" >>"$state/todo"
  done
  count=$(wc -l <"$state/todo")
  say "clang-tidy: $count translation units have changed"
  export state shared venv
  export -f unit_hash tidy_unit
  xargs -r -P "$jobs" -I '{}' bash -c 'tidy_unit "$1"' tidy '{}' <"$state/todo"
}

unit_hash() { { echo "$1"; cat "$2"; } | sha256sum | cut -c 1-32; }

tidy_unit() {
  local unit=$1
  # The database is GCC's; the few flags that clang does not know are no finding.
  "$venv/bin/clang-tidy" --quiet -p build/release --extra-arg=-Wno-unknown-warning-option "$unit" \
    2> >(grep -vE 'warnings? generated|^Suppressed|^Use -header' >&2) || return 1
  unit_hash "$shared" "$unit" >"$state/${unit//\//@}"
}
