#!/usr/bin/env python3
"""What a trace costs a call, and whether one that is off costs anything that can be told.

    python3 bench/tuning/trace_cost.py [--rounds 12]

Two ranks, each bound to a CPU of its own, sum 4 KiB, 64 KiB and 1 MiB of float32 as int8/128 in
shared memory, without a trace, without one again, and with one (``trace_file=``), in turns, each
time in new processes. Medians of all runs; *again* is what the same thing differs by from itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rank_processes import run_ranks
from timed_turns import largest

import tersum
from tersum.cli.byte_sizes import format_bytes
from tersum.cli.perf_binding import Cpus, cpus_by_rank
from tersum.cli.perf_data import make_values
from tersum.cli.perf_table import placement

SIZES = (4 << 10, 64 << 10, 1 << 20)
KINDS = ("off", "again", "on")
CALLS = 300  # of each size in a run


def run_rank(rank: int, cpus: tuple[Cpus, ...], trace: str, store: str, results: Any) -> None:
    """One rank. Rank 0 puts the medians of the slower rank's times, one for each size."""
    os.sched_setaffinity(0, cpus[rank][:1])
    with tersum.Communicator(rank, 2, store, transport="shm", trace_file=trace) as group:
        medians = [median_us(group, size) for size in SIZES]
    if rank == 0:
        results.put(medians)


def median_us(group: tersum.Communicator, size: int) -> float:
    """Of all calls but the first twenty."""
    values = make_values(size // 4, "float32", 1, group.rank)
    out = np.empty_like(values)
    own = []
    for _ in range(CALLS + 20):
        begun = time.perf_counter()
        group.all_reduce(values, codec="int8", out=out)
        own.append(time.perf_counter() - begun)
    return statistics.median(largest(group, np.asarray(own[20:]))) * 1e6


def measure(rounds: int) -> list[dict[str, Any]]:
    """One row for each size."""
    cpus = cpus_by_rank(2)
    if not cpus or cpus[0] == cpus[1]:
        sys.exit("trace_cost: two CPUs are needed, and the right to bind ranks to them")
    runs: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for kind in KINDS:
                trace = str(Path(folder) / "trace.json") if kind == "on" else ""
                runs[kind] += run_ranks(2, run_rank, (cpus, trace), 1)
    rows = []
    for i, size in enumerate(SIZES):
        times = {f"{kind}_us": statistics.median(run[i] for run in runs[kind]) for kind in KINDS}
        rows.append({"bytes": size, "rounds": rounds, **times})
    return rows


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path)
    return parser


def main() -> int:
    """Prints the table."""
    options = make_parser().parse_args()
    os.environ.pop("TERSUM_TRACE", None)
    print(placement(), flush=True)
    rows = measure(options.rounds)
    print("| f32 | no trace | again, over it | a trace, over it |\n|---|---|---|---|")
    for row in rows:
        again, on = (row[f"{kind}_us"] / row["off_us"] for kind in ("again", "on"))
        print(f"| {format_bytes(row['bytes'])} | {row['off_us']:.1f} us | {again:.2f} | {on:.2f} |")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
