#!/usr/bin/env python3
"""How good is the rule for slices? Other limits of a slice, held against the default one.

    python3 bench/tuning/slice_sizes.py [--wires shm,tcp,1gbit] [--ranks 2] [--seconds 2]
        [--sizes 64K,1M,16M] [--json FILE]

Ranks sum float32 by two_step, exactly and with int8/128, in groups that differ in nothing but
``slice_bytes``, the most bytes of a slice: 8 KiB to 1 MiB, and 0, which is what groups have that
name none. The groups take turns, a few calls each, within one run. ``shm`` and ``tcp`` are shared
memory and loopback; a rate such as ``1gbit`` is a link between network namespaces (root).

The limit comes on top of the rule (a sixteenth of a chunk): one above what the rule takes changes
nothing. Prints medians in microseconds; the last column is the default's time over the best one's,
``*`` where that is more than 5 %.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from timed_turns import largest, times_in_turns

import tersum
from tersum.cli.byte_sizes import format_bytes, parse_bytes
from tersum.cli.perf_data import make_values
from tersum.cli.shaped_link import ShapedLink

LIMITS = (0, 8 << 10, 16 << 10, 32 << 10, 128 << 10, 256 << 10, 1 << 20)
CODECS = ("exact", "int8/128")
BEHIND = 1.05

Row = dict[str, Any]


def measure(groups: list[tersum.Communicator], size: int, codec: str, seconds: float) -> list[Row]:
    """One row per group, which take turns for about ``seconds``."""
    x = make_values(size // 4, "float32", 1, groups[0].rank)
    out = np.empty_like(x)
    times = times_in_turns(
        [
            (group, partial(group.all_reduce, x, "sum", codec, "two_step", out=out))
            for group in groups
        ],
        seconds,
    )
    rows = []
    for limit, own in zip(LIMITS, times, strict=True):
        median = statistics.median(largest(groups[0], np.asarray(own)).tolist())
        rows.append(
            {"bytes": size, "codec": codec, "slice_bytes": limit, "us": median * 1e6}
            | {"calls": len(own)}
        )
    return rows


def run_rank(options: argparse.Namespace) -> None:
    """One rank. Rank 0 prints one line of rows per size and codec."""
    with contextlib.ExitStack() as stack:
        groups = [
            stack.enter_context(
                tersum.Communicator(
                    options.rank,
                    options.ranks,
                    options.store,
                    name=f"limit{limit}",
                    transport=options.transport,
                    slice_bytes=limit,
                    timeout_ms=120_000,
                )
            )
            for limit in LIMITS
        ]
        for size, codec in itertools.product(options.sizes, CODECS):
            rows = measure(groups, size, codec, options.seconds)
            if options.rank == 0:
                print(json.dumps(rows), flush=True)


def run_wire(wire: str, options: argparse.Namespace) -> list[list[Row]]:
    """The rows of all sizes and codecs on one wire; ends the program if a rank fails."""
    with contextlib.ExitStack() as stack:
        argv = [sys.executable, __file__, "--ranks", str(options.ranks)]
        argv += ["--sizes", ",".join(map(str, options.sizes)), "--seconds", str(options.seconds)]
        keywords: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
        keywords["env"] = {name: os.environ[name] for name in os.environ if name[:7] != "TERSUM_"}
        if wire in ("shm", "tcp"):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            argv += ["--transport", wire, "--store", f"file://{folder}/store", "--rank"]
            ranks = [
                subprocess.Popen([*argv, str(rank)], **keywords) for rank in range(options.ranks)
            ]
        else:
            link = stack.enter_context(ShapedLink(options.ranks, wire))
            argv += ["--transport", "tcp", "--store", f"tcp://{link.addresses[0]}:29500", "--rank"]
            ranks = [
                link.popen(rank, [*argv, str(rank)], **keywords) for rank in range(options.ranks)
            ]
        printed = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit("a rank failed")
        return [json.loads(line) for line in printed[0].splitlines()]


def print_rows(wire: str, rows: list[Row]) -> None:
    """A line of the table."""
    ratio = rows[0]["us"] / min(row["us"] for row in rows)
    mark = " *" if ratio > BEHIND else ""
    cells = " | ".join(f"{row['us']:,.0f}" for row in rows)
    size = format_bytes(rows[0]["bytes"])
    print(f"| {wire} | {size} | {rows[0]['codec']} | {cells} | {ratio:.3f}{mark} |", flush=True)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wires", default="shm,tcp,1gbit")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="per size and codec")
    parser.add_argument(
        "--sizes",
        type=lambda text: [parse_bytes(part) for part in text.split(",")],
        default=[64 << 10, 1 << 20, 16 << 20],
    )
    parser.add_argument("--json", type=Path, help="also write the rows there")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--transport", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options)
        return 0
    names = " | ".join(format_bytes(limit) if limit else "default" for limit in LIMITS)
    print(f"| wire | f32 | codec | {names} | default over best |\n|{'---|' * (4 + len(LIMITS))}")
    table: list[Row] = []
    for wire in options.wires.split(","):
        for rows in run_wire(wire, options):
            print_rows(wire, rows)
            table += [{"wire": wire, "ranks": options.ranks, **row} for row in rows]
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
