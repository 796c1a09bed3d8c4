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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rank_processes import cpus_of_two, run_ranks
from timed_turns import median_us

import tersum
from tersum.cli.byte_sizes import format_bytes
from tersum.cli.perf_binding import Cpus
from tersum.cli.perf_data import make_values
from tersum.cli.perf_placement import measure_placement, placement_line

SIZES = (4 << 10, 64 << 10, 1 << 20)
KINDS = ("off", "again", "on")
CALLS = 300  # of each size in a run


def run_rank(rank: int, cpus: tuple[Cpus, ...], trace: str, store: str, results: Any) -> None:
    """One rank. Rank 0 puts the medians of the slower rank's times, one for each size."""
    os.sched_setaffinity(0, cpus[rank][:1])
    with tersum.Communicator(rank, 2, store, transport="shm", trace_file=trace) as group:
        medians = [reduce_us(group, size) for size in SIZES]
    if rank == 0:
        results.put(medians)


def reduce_us(group: tersum.Communicator, size: int) -> float:
    """The median of this size's calls."""
    values = make_values(size // 4, "float32", 1, group.rank)
    call = partial(group.all_reduce, values, codec="int8", out=np.empty_like(values))
    return median_us(group, call, calls=CALLS, untimed=20)


def measure(rounds: int) -> list[dict[str, Any]]:
    """One row for each size."""
    cpus = cpus_of_two()
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
    print(placement_line(measure_placement()), flush=True)
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
