#!/usr/bin/env python3
"""How well are times foretold, and how good are the tuner's choices, where nothing shapes the wire?

    python3 bench/tuning/model_check.py [--ranks 2,4] [--transport tcp,shm] [--bind cores|none]
        [--to-bytes 64M] [--json FILE]

Starts ranks on this machine, bound to cores as ``tersum perf`` binds them. They tune, then sum 64
KiB of float32: exactly and with int8/128, by each plan, and with plan or codec left open; also with
two codecs that tuning does not measure. All of them take turns within one run, a few calls each,
the first of which is not timed. Then they tune again and go on with the next size, up to 64 MiB:
hosts move virtual CPUs from chiplet to chiplet, which doubles times within seconds and is not what
is asked here. Prints per path the median, how far a quarter of the calls lie above and below, and
what was predicted for it after tuning; then what was chosen where something was open, and its time
over that of the best fixed path that was allowed there. A quantized ring codes partial sums: who
leaves the plan open did not ask for that error, so that it is measured, but not held against a
choice.

``*`` marks what misses its bar: a prediction more than 30 % off, a choice more than 5 % behind,
unless it took the best path itself, of whose noise the ratio then tells.
Below each table stands how many hold theirs, and as a yardstick of how steady the machine was how
many would if those very calls were known: the median of a path's first half for a prediction, what
was quickest in that half for a choice, both held against the second half.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rank_processes import run_ranks
from timed_turns import largest, times_in_turns

import tersum
from tersum.cli.byte_sizes import format_bytes, parse_bytes
from tersum.cli.perf_binding import BINDINGS, Cpus, binding_text, cpus_by_rank
from tersum.cli.perf_data import make_values
from tersum.cli.perf_placement import measure_placement, placement_line

SIZES = [(64 << 10) << (2 * step) for step in range(6)]
CODECS = ("exact", "int8/128")
# Tuning does not measure these: what is predicted for them is the model's alone.
UNMEASURED = (("int6/128", "two_step"), ("nf4/64", "two_step"))
PLANS = ("two_step", "ring", "one_shot")
OPEN = (("exact", "auto"), ("int8/128", "auto"), ("auto", "auto"))
ONE_SHOT_BYTES_MAX = 1 << 20
PREDICTED_WITHIN = 1.3
CHOSEN_WITHIN = 1.05


class Job(NamedTuple):
    """What the ranks of one table do."""

    transport: str
    ranks: int
    seconds: float
    cpus: tuple[Cpus, ...]
    sizes: list[int]


class Route(NamedTuple):
    """Codec and plan."""

    codec: str
    plan: str


def contenders_at(size: int) -> list[Route]:
    """The fixed paths, then those with something open."""
    plans = [plan for plan in PLANS if plan != "one_shot" or size <= ONE_SHOT_BYTES_MAX]
    fixed = [Route(codec, plan) for plan in plans for codec in CODECS]
    return fixed + [Route(*path) for path in (*UNMEASURED, *OPEN)]


def route_of(row: dict[str, Any]) -> Route:
    """The path that was asked for."""
    return Route(row["codec"], row["plan"])


def same_path(one: Sequence[str], other: Sequence[str], ranks: int) -> bool:
    """Whether two names of codec and plan are one path: a ring of two ranks is two_step."""
    plans = {one[1], other[1]}
    return one[0] == other[0] and (
        len(plans) == 1 or (ranks == 2 and plans == {"ring", "two_step"})
    )


def allowed(asked: Route, fixed: Route, ranks: int) -> bool:
    """Whether ``fixed`` is what ``asked`` might have taken."""
    if asked.codec not in ("auto", fixed.codec):
        return False
    return not (fixed.plan == "ring" and fixed.codec != "exact" and ranks > 2)


def run_rank(rank: int, job: Job, store: str, results: Any) -> None:
    """One rank: tunes and measures for every size. Rank 0 puts one list of rows per size."""
    if job.cpus:
        os.sched_setaffinity(0, job.cpus[rank])
    with tersum.Communicator(
        rank, job.ranks, store, transport=job.transport, timeout_ms=120_000
    ) as group:
        for size in job.sizes:
            group.tune(fresh=True)
            rows = measure_size(group, size, job.seconds)
            if rank == 0:
                results.put(rows)


def measure_size(group: tersum.Communicator, size: int, seconds: float) -> list[dict[str, Any]]:
    """All contenders at one size, in turns, for about ``seconds``."""
    x = make_values(size // 4, "float32", 1, group.rank)
    out = np.empty_like(x)
    paths = contenders_at(size)
    choices = [group.choose("all_reduce", x.size, "float32", "sum", *path) for path in paths]
    times = times_in_turns(
        [(group, partial(group.all_reduce, x, "sum", *path, out=out)) for path in paths], seconds
    )
    rows = []
    for path, choice, own in zip(paths, choices, times, strict=True):
        slowest = largest(group, np.asarray(own))
        low, median, high = statistics.quantiles(slowest, n=4)
        halves = [statistics.median(half) * 1e6 for half in np.array_split(slowest, 2)]
        rows.append(
            {
                **{"ranks": group.size, "bytes": size, "codec": path.codec, "plan": path.plan},
                **{"took": [choice.codec, choice.plan], "calls": len(own)},
                **{"us": median * 1e6, "us_low": low * 1e6, "us_high": high * 1e6},
                "us_halves": halves,
                "predicted_us": choice.seconds * 1e6 or None,
            }
        )
    return rows


def run_group(job: Job) -> list[list[dict[str, Any]]]:
    """Rows per size; ranks have no cache of former tunings."""
    os.environ["TERSUM_CACHE_DIR"] = ""
    sizes: list[list[dict[str, Any]]] = run_ranks(job.ranks, run_rank, (job,), len(job.sizes))
    for rows in sizes:
        for row in rows:
            row["transport"] = job.transport
    return sizes


def is_foretold(predicted: float, measured: float) -> bool:
    """Whether the bar of predictions is held."""
    return 1 / PREDICTED_WITHIN <= predicted / measured <= PREDICTED_WITHIN


def print_predictions(rows: list[dict[str, Any]]) -> None:
    """One line per fixed path."""
    for row in rows:
        if "auto" in (row["codec"], row["plan"]):
            continue
        predicted = row["predicted_us"]
        ratio = predicted / row["us"] if predicted else math.nan
        off = predicted is not None and not is_foretold(predicted, row["us"])
        print(
            f"| {format_bytes(row['bytes'])} | {row['codec']} {row['plan']} | {row['us']:,.1f} "
            f"| {row['us_low'] / row['us'] - 1:+.0%} {row['us_high'] / row['us'] - 1:+.0%} "
            f"| {'-' if predicted is None else f'{predicted:,.1f}'} | {ratio:.2f}{'*' * off} |",
            flush=True,
        )


def name_best(rows: list[dict[str, Any]], ranks: int) -> None:
    """Adds to each path with something open the quickest fixed one that it might have taken, and
    how much slower in the second half of the calls the quickest of the first half was than that of
    the second.
    """
    fixed = [row for row in rows if row["codec"] in CODECS and row["plan"] != "auto"]
    for row in rows:
        asked = route_of(row)
        if asked not in OPEN:
            continue
        rivals = [one for one in fixed if allowed(asked, route_of(one), ranks)]
        best = min(rivals, key=lambda one: one["us"])
        row["best"], row["best_us"] = list(route_of(best)), best["us"]
        if "us_halves" in row:
            first = min(rivals, key=lambda one: one["us_halves"][0])
            second = min(rivals, key=lambda one: one["us_halves"][1])
            same = same_path(route_of(first), route_of(second), ranks)
            row["first_half_over_best"] = (
                1.0 if same else first["us_halves"][1] / second["us_halves"][1]
            )


def print_choices(rows: list[dict[str, Any]]) -> None:
    """One line per path with something open: what it took, and how much slower that was."""
    for row in rows:
        if "best" not in row:
            continue
        ratio = row["us"] / row["best_us"]
        same = same_path(row["took"], row["best"], row["ranks"])
        verdict = "" if ratio <= CHOSEN_WITHIN else " (the same path)" if same else "*"
        print(
            f"| {format_bytes(row['bytes'])} | {row['codec']} {row['plan']} "
            f"| {' '.join(row['took'])} | {row['us']:,.1f} "
            f"| {' '.join(row['best'])} {row['best_us']:,.1f} | {ratio:.2f}{verdict} |",
            flush=True,
        )


def summary(rows: list[dict[str, Any]]) -> str:
    """What holds its bar in a table whose best paths have been named."""
    foretold = [
        row for row in rows if "auto" not in (row["codec"], row["plan"]) and row["predicted_us"]
    ]
    open_ones = [row for row in rows if "best" in row]
    held = sum(is_foretold(row["predicted_us"], row["us"]) for row in foretold)
    held_by_half = sum(is_foretold(*row["us_halves"]) for row in foretold)
    chosen = sum(
        row["us"] <= CHOSEN_WITHIN * row["best_us"]
        or same_path(row["took"], row["best"], row["ranks"])
        for row in open_ones
    )
    chosen_by_half = sum(row["first_half_over_best"] <= CHOSEN_WITHIN for row in open_ones)
    return (
        f"predictions within 30 %: {held} of {len(foretold)}, "
        f"by the first half of the calls {held_by_half}; "
        f"choices within 5 %: {chosen} of {len(open_ones)}, "
        f"by the first half {chosen_by_half}"
    )


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--transport", default="tcp,shm")
    parser.add_argument("--seconds", type=float, default=2.0, help="per size; default 2")
    parser.add_argument("--bind", choices=BINDINGS, default="cores")
    parser.add_argument(
        "--to-bytes", type=parse_bytes, default=SIZES[-1], help="leave larger arrays out"
    )
    parser.add_argument("--json", type=Path)
    return parser


def main() -> int:
    """Prints the tables."""
    options = make_parser().parse_args()
    wanted = [size for size in SIZES if size <= options.to_bytes]
    every: list[dict[str, Any]] = []
    print(f"tersum {tersum.__version__} ({tersum.isa()})")
    for transport in options.transport.split(","):
        for ranks in map(int, options.ranks.split(",")):
            cpus = cpus_by_rank(ranks) if options.bind == "cores" else ()
            place = placement_line(measure_placement())
            print(f"\n{transport}, {ranks} ranks\n{place}")
            print(f"CPUs of each rank: {binding_text(cpus) or 'any'}", flush=True)
            sizes = run_group(Job(transport, ranks, options.seconds, cpus, wanted))
            print("\n| f32 | path | us | quarters | predicted | ratio |\n|---|---|---|---|---|---|")
            for rows in sizes:
                print_predictions(rows)
            print("\n| f32 | asked | took | us | best fixed | over it |\n|---|---|---|---|---|---|")
            for rows in sizes:
                name_best(rows, ranks)
                print_choices(rows)
                every += rows
            print(f"\n{summary([row for rows in sizes for row in rows])}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(every, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
