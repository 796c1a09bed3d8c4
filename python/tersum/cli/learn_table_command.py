"""``tersum learn-table``: the levels that suit the values that a program sums, as a file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tersum
from tersum._captured_calls import CapturedSite
from tersum._level_tables import LEVEL_COUNTS
from tersum.cli.captured_sites import read_sites
from tersum.cli.command_error import CommandError

# More values would not change a table of 16 levels.
_VALUES_MAX = 1 << 22


def add_parser(commands: Any) -> None:
    """Adds ``learn-table`` to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "learn-table",
        help="learn the levels of a table codec from captured sums",
        description=(
            "Learns, by k-means, the levels that code what tersum.capture() or "
            "tersum.jax.capture() recorded with the least squared error, and writes them to a "
            'file, for the codec "table:FILE" (docs/codecs.md, "Tables").'
        ),
    )
    parser.add_argument("--capture", required=True, type=Path, help="the captures' directory")
    parser.add_argument("--out", required=True, type=Path, help="the file to write")
    parser.add_argument("--levels", type=int, default=16, choices=LEVEL_COUNTS, help="default: 16")
    parser.add_argument("--block", type=int, default=64, help="values to a scale (default: 64)")
    parser.add_argument("--site", help="learn from this site only (default: from all)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the file."""
    sites = read_sites(arguments.capture, arguments.site)
    values = np.concatenate(list(_blocks(sites, arguments.block)))
    levels = tersum.learn_table(values, arguments.levels, block=arguments.block)
    try:
        np.savetxt(arguments.out, levels, fmt="%.9g")
    except OSError as error:
        raise CommandError(f"cannot write {arguments.out}: {error.strerror}") from error
    spec = f"table:{arguments.out}/{arguments.block}"
    info = tersum.codec_info(spec)
    print(f"{spec}: {arguments.levels} levels from {values.size} values, {info.wire_bits:g} bits")
    print(f"Ranks that compare specs see {info.spec}")
    return 0


def _blocks(sites: list[CapturedSite], block: int) -> Iterator[npt.NDArray[np.float32]]:
    """Of every array as many whole blocks as its share comes to."""
    arrays = sum(len(site.calls) * site.ranks for site in sites)
    share = max(_VALUES_MAX // arrays // block, 1) * block
    for site in sites:
        for inputs in site.inputs(site.ranks):
            for values in inputs:
                # A block of its own, so that no block has values of two arrays.
                taken = values[:share]
                yield np.pad(taken, (0, -len(taken) % block))
