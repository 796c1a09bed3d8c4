#!/usr/bin/env python3
"""Draws what measure_report.py has measured: one SVG for each group of numbers.

    python bench/report/plot_report.py FOLDER OUT_FOLDER [GROUP…] [--tables]

Groups whose files are not there are left out, with a line that says so. The same numbers give the
same files. --tables also prints Markdown tables of the sweeps. Exit status 2 for wrong options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from plot_calls import draw_calls
from plot_choices import draw_choices
from plot_kernels import draw_kernels
from plot_links import draw_auto, draw_links
from plot_model import draw_model
from plot_peers import draw_peers
from plot_style import NoRowsError
from plot_sweeps import draw_predictions, draw_sweeps
from plot_topologies import draw_topologies
from sweep_rows import choice_table, prediction_table, read_sweeps

# Each takes the folder of the rows and that of the pictures, and returns what it wrote.
GROUPS: dict[str, Callable[[Path, Path], list[Path]]] = {
    "topologies": draw_topologies,
    "sweep": draw_sweeps,
    "prediction": draw_predictions,
    "choices": draw_choices,
    "peers-tcp": partial(draw_peers, "tcp"),
    "peers-shm": partial(draw_peers, "shm"),
    "auto": draw_auto,
    "links": draw_links,
    "kernels": draw_kernels,
    "model": draw_model,
    "calls": draw_calls,
}


def draw(folder: Path, out: Path, groups: list[str]) -> list[Path]:
    """What was written, of ``groups``."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for group in groups:
        try:
            paths = GROUPS[group](folder, out)
        except NoRowsError as missing:
            print(f"{group}: left out, there is {missing}")
            continue
        print(f"{group}: {', '.join(str(path) for path in paths)}")
        written += paths
    return written


def print_tables(folder: Path) -> None:
    """The sweeps as Markdown."""
    try:
        sweeps = read_sweeps(folder)
    except NoRowsError as missing:
        print(f"tables: left out, there is {missing}")
        return
    print("\n".join(["", *choice_table(sweeps), "", *prediction_table(sweeps)]))


def main() -> int:
    """Draws, and prints what became of each group."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of measure_report.py")
    parser.add_argument("out", type=Path, metavar="OUT_FOLDER", help="of the pictures")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; all")
    parser.add_argument("--tables", action="store_true", help="print tables of the sweeps, too")
    options = parser.parse_args()
    for group in options.groups:
        if group not in GROUPS:
            parser.error(f"no group {group!r}; there are: {', '.join(GROUPS)}")
    draw(options.folder, options.out, options.groups or list(GROUPS))
    if options.tables:
        print_tables(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
