#!/usr/bin/env python3
"""Is ``codec="auto"`` ever slower than exact? Sweeps 1 KiB to 256 MiB of float32 on one link.

    python3 bench/tuning/auto_sweep.py [--ranks 2] [--transport shm|tcp] [--link 1gbit]
        [--max-rel-error E] [--json FILE]

Prints one row per size: medians of both, what auto took, and the ratio. The two take turns within
one run of ``tersum perf``. A row is marked when auto is slower by more than 3 % and more than 1 us,
also where it took what exact takes, in which case the ratio holds what auto itself costs and how
noisy the machine is. What seems slower is measured twice more, and is if it always was.
Exit status 1 if any is slower.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tersum.cli.byte_sizes import format_bytes, parse_bytes

# (least bytes, most bytes, iterations). Each band begins one size early and makes many short calls:
# in the first tenths of a second the scheduler has not yet given each rank a core of its own.
BANDS = [
    (256, 16 << 10, 12000),
    (16 << 10, 256 << 10, 8000),
    (256 << 10, 4 << 20, 800),
    (4 << 20, 64 << 20, 40),
    (64 << 20, 256 << 20, 9),
]
SLOWER = 1.03
SLOWER_US = 1.0
TRIES = 3


def measure(low: int, high: int, iterations: int, arguments: list[str]) -> list[dict[str, Any]]:
    """The rows of ``tersum perf`` for one band of sizes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "tersum", "perf", "--codec", "exact,auto", "--explain"]
        command += ["--min-bytes", str(low), "--max-bytes", str(high), "--factor", "4"]
        command += ["--iters", str(iterations), "--warmup", str(iterations // 8 + 3)]
        command += ["--json", str(path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        rows: list[dict[str, Any]] = json.loads(path.read_text())
        return rows


def path_of(row: dict[str, Any]) -> str:
    """``"int8/128 two_step"``: what the calls of a row took."""
    taken: str = row["explanation"].split(":")[0].split(",")[0]
    return taken


def is_slower(exact: dict[str, Any], auto: dict[str, Any]) -> bool:
    """By more than the bar."""
    lost_us: float = auto["time_us"] - exact["time_us"]
    return bool(auto["time_us"] > SLOWER * exact["time_us"] and lost_us > SLOWER_US)


def compare(
    exact: dict[str, Any], auto: dict[str, Any], again: Callable[[], list[dict[str, Any]]]
) -> dict[str, Any]:
    """Prints one row and returns it: medians in microseconds, what each took, the verdict. Of
    several tries, the last. ``again``: measures the size once more."""
    tries = 1
    while is_slower(exact, auto) and tries < TRIES:
        exact, auto = again()[-2:]
        tries += 1
    same = path_of(auto) == path_of(exact)
    slower = is_slower(exact, auto)
    ratio = auto["time_us"] / exact["time_us"]
    times = " | ".join(f"{row['time_us']:,.1f} us" for row in (exact, auto))
    words = ["the same path"] * same + ["slower"] * slower
    words += [f"try {tries}"] * (tries > 1)
    print(
        f"| {format_bytes(auto['bytes'])} | {times} | {path_of(auto)} | {ratio:.2f} "
        f"| {', '.join(words)} |",
        flush=True,
    )
    return {
        **{"bytes": auto["bytes"], "ranks": auto["ranks"]},
        **{"exact_us": exact["time_us"], "auto_us": auto["time_us"]},
        **{"exact_took": path_of(exact), "auto_took": path_of(auto)},
        **{"same_path": same, "slower": slower, "tries": tries},
    }


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--transport")
    parser.add_argument("--link")
    parser.add_argument("--max-rel-error", help="of auto: it then goes by samples of the data")
    parser.add_argument("--from-bytes", type=parse_bytes, default=0, help="leave smaller bands out")
    parser.add_argument(
        "--to-bytes", type=parse_bytes, default=1 << 62, help="leave larger bands out"
    )
    parser.add_argument("--slow", type=int, default=1, help="divide the iterations by this")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    return parser


def main() -> int:
    """Prints the table."""
    options = make_parser().parse_args()
    arguments = ["--ranks", options.ranks]
    arguments += ["--transport", options.transport] if options.transport else []
    arguments += ["--link", options.link] if options.link else []
    arguments += ["--max-rel-error", options.max_rel_error] if options.max_rel_error else []
    table: list[dict[str, Any]] = []
    print("| f32 | exact | auto | auto took | auto over exact | |\n|---|---|---|---|---|---|")
    for low, high, iterations in BANDS:
        if 4 * low < options.from_bytes or high > options.to_bytes:
            continue
        calls = max(iterations // options.slow, 5)
        rows = measure(low, high, calls, arguments)
        for exact, auto in zip(rows[2::2], rows[3::2], strict=True):
            size = auto["bytes"]
            again = functools.partial(measure, max(size // 4, 4), size, calls, arguments)
            table.append(compare(exact, auto, again))
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row["slower"] for row in table) else 0


if __name__ == "__main__":
    sys.exit(main())
