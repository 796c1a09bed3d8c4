# Debian packages, in groups; docs/dependencies.md says what each is for.

packages_build=(
  ca-certificates ccache cmake g++ git libfmt-dev libhwy-dev libprotozero-dev libxxhash-dev
  ninja-build nlohmann-json3-dev python3 python3-dev python3-venv
)
packages_link=(iproute2 procps)
packages_test=(
  libbenchmark-dev libcli11-dev libgmock-dev libgtest-dev librapidcheck-dev
  universal-ctags util-linux
)
packages_fuzz=(clang-19 libclang-rt-19-dev)
packages_lint=(clang-format-19)

# ensure_packages NAME…: installs those that are missing, and touches nothing when none is.
ensure_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this is not a Debian system; install by hand what docs/dependencies.md lists"
  local installed package
  local -a missing=()
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | sed -n 's/^ii  *//p')
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
