# Shared by all scripts: where the tree is, how to speak, how to become root.
# Source it first; it sets -euo pipefail and changes to the repository root.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
jobs=$(nproc)
venv="$root/.venv"

# With the minutes and seconds since TERSUM_BEGAN (in seconds since 1970), where that is set.
say() {
  local at=
  [ -z "${TERSUM_BEGAN:-}" ] || at=$(printf '%d:%02d ' $((($(date +%s) - TERSUM_BEGAN) / 60)) \
    $((($(date +%s) - TERSUM_BEGAN) % 60)))
  printf '\n== %s%s\n' "$at" "$*"
}

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Runs its arguments as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "root is needed for: $*. Run it as root, or install sudo, and start again."
  fi
}

# Prints one hash of the contents and names of the files below the given paths.
hash_of() {
  find "$@" -type f -not -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum |
    sha256sum | cut -d ' ' -f 1
}

# stamp_matches FILE VALUE: true if the step that FILE stands for was done for VALUE.
stamp_matches() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }
