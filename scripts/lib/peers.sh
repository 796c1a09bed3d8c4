# Other CPU collective libraries, to be compared with: Open MPI, MPICH, oneCCL. Programs of
# bench/peers, each compiled with its library's own compiler or flags, come to build/peers.
peers=build/peers
packages_peers=(libmpich-dev libopenmpi-dev mpich openmpi-bin)

build_peers() {
  ensure_packages "${packages_peers[@]}"
  mkdir -p "$peers"
  local mpi
  for mpi in openmpi mpich; do
    say "Building $peers/${mpi}_all_reduce"
    # Without the C++ bindings, which the standard has dropped and whose headers warn.
    "mpicxx.$mpi" -std=c++20 -O2 -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX \
      bench/peers/mpi_all_reduce.cc -o "$peers/${mpi}_all_reduce"
  done
  build_oneccl
  cp build/release/bench/peers/tersum_all_reduce "$peers/"
  say "tersum perf --compare all --transport tcp now compares with them"
}

# oneCCL and all that it needs (Intel's SYCL run time among it, 2 GB) into a folder of its own: its
# package would put another mpirun into .venv/bin.
build_oneccl() {
  local prefix="$peers/oneccl" wanted
  wanted="$(hash_of "$requirements/peers.txt")"
  if ! stamp_matches "$peers/.stamp-oneccl" "$wanted"; then
    say "Installing oneCCL into $prefix"
    rm -rf "$prefix"
    "$venv/bin/python" -m pip install -qq --ignore-installed --prefix "$prefix" \
      -r "$requirements/peers.txt"
    echo "$wanted" >"$peers/.stamp-oneccl"
  fi
  say "Building $peers/oneccl_all_reduce"
  # What libccl.so needs in turn is found at run time.
  c++ -std=c++20 -O2 -I "$prefix/include" bench/peers/oneccl_all_reduce.cc \
    -o "$peers/oneccl_all_reduce" -L "$prefix/lib" -lccl -Wl,--allow-shlib-undefined
}
