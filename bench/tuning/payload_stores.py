#!/usr/bin/env python3
"""Shared memory between near and far cores, with payloads stored in the caches and past them.

    python3 bench/tuning/payload_stores.py [--rounds 10]

Two ranks, each bound to a CPU of its own, sum 64 KiB to 64 MiB of float32 by two_step, with
``TERSUM_SHM_STORES`` cached, streamed and auto in turns. Hosts move virtual CPUs between chiplets
while this runs, so that the CPUs' distance is measured before and after each codec's calls: a
table for each distance that was met, medians over the rounds, without those in which it changed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
from rank_processes import cpus_of_two, run_ranks
from timed_turns import median_us

import tersum
from tersum import _core
from tersum.cli.byte_sizes import format_bytes
from tersum.cli.perf_binding import Cpus
from tersum.cli.perf_data import make_values

SIZES = [(64 << 10) << (2 * step) for step in range(6)]
CODECS = ("exact", "bf16", "int8/128", "int4/128")
STORES = ("cached", "streamed", "auto")
FAR_NS = 80.0  # one way, for a cache line

Times = dict[tuple[bool, str, str], list[list[float]]]


def run_rank(rank: int, cpus: tuple[Cpus, ...], stores: str, store: str, results: Any) -> None:
    """One rank. Rank 0 puts, per codec, how far the CPUs were before and after, and its times."""
    os.environ["TERSUM_SHM_STORES"] = stores
    os.sched_setaffinity(0, cpus[rank][:1])
    with tersum.Communicator(rank, 2, store, transport="shm") as group:
        arrays = [make_values(size // 4, "float32", 1, rank) for size in SIZES]
        outputs = [np.empty_like(array) for array in arrays]
        for codec in CODECS:
            before = distance(group, cpus)
            times = [
                median_us(
                    group,
                    partial(group.all_reduce, array, "sum", codec, "two_step", out=output),
                    calls=calls_of(array.nbytes),
                    untimed=2,
                )
                for array, output in zip(arrays, outputs, strict=True)
            ]
            after = distance(group, cpus)
            if rank == 0:
                results.put((codec, before, after, times))


def distance(group: tersum.Communicator, cpus: tuple[Cpus, ...]) -> float:
    """Nanoseconds for a cache line between the two ranks' CPUs; meanwhile rank 1 waits."""
    ns: float = 0.0
    if group.rank == 0:
        ns = _core.core_distance_ns(cpus[0][0], cpus[1][0])
    group.barrier()
    return ns


def calls_of(size: int) -> int:
    """How many of an array's calls are timed."""
    return 40 if size <= 1 << 20 else 12 if size <= 4 << 20 else 5


def measure(cpus: tuple[Cpus, ...], stores: str, times: Times) -> None:
    """Two new ranks, once through all codecs."""
    for codec, before, after, row in run_ranks(2, run_rank, (cpus, stores), len(CODECS)):
        if (before > FAR_NS) == (after > FAR_NS):
            times[before > FAR_NS, codec, stores].append(row)


def print_table(far: bool, times: Times) -> None:
    """Medians over the rounds, microseconds."""
    names = map(format_bytes, SIZES)
    print(f"\n{'far' if far else 'near'}, us")
    print(f"| codec | stores | rounds | {' | '.join(names)} |\n|{'---|' * (3 + len(SIZES))}")
    for codec in CODECS:
        for stores in STORES:
            rows = times[far, codec, stores]
            cells = [f"{statistics.median(column):,.0f}" for column in zip(*rows, strict=True)]
            print(f"| {codec} | {stores} | {len(rows)} | {' | '.join(cells)} |")


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    cpus = cpus_of_two()
    times: Times = defaultdict(list)
    for _ in range(options.rounds):
        for stores in STORES:
            measure(cpus, stores, times)
    for far in (False, True):
        if any(times[far, codec, stores] for codec in CODECS for stores in STORES):
            print_table(far, times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
