"""Runs the collective checks again and again in fresh processes: ``python jax_soak.py --runs 100``.

4 processes with 2 devices each by default. Every run must end in time, with right sums and the same
bits in every process; the first one that does not stops the soak with its output. Not collected by
pytest: it takes long.
"""

from __future__ import annotations

import argparse
import time

from jax_launch import run_jax

# What exercises order and matching most; the compile-heavy rest runs once in the ordinary tests.
CHECKS = (
    "psum_exact",
    "permuted_mesh_of_two_axes",
    "loops_and_branches",
    "many_independent_sums",
    "reduce_scatter",
)
NO_COMBINER = "--xla_disable_hlo_passes=cpu-all-reduce-combiner"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run")
    options = parser.parse_args()
    start = time.monotonic()
    for number in range(options.runs):
        outputs = run_jax(
            "collective_checks.py",
            count=options.processes,
            devices=options.devices,
            arguments=CHECKS,
            # Every other run keeps the sums apart, so that they start in different orders.
            xla_flags=NO_COMBINER if number % 2 else "",
            timeout_s=options.timeout,
        )
        digests = [[x for x in text.splitlines() if x.startswith("ok ")] for text in outputs]
        if any(len(digest) != len(CHECKS) or digest != digests[0] for digest in digests):
            raise SystemExit(f"run {number}: the processes disagree: {digests}")
        seconds = time.monotonic() - start
        print(f"run {number + 1} of {options.runs}: {seconds:.0f} s so far", flush=True)


if __name__ == "__main__":
    main()
