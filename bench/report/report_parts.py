"""What a measurement of the report consists of: commands, and what they need."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Literal

from tersum.cli import build_parser
from tersum.cli.perf_options import LIBRARIES

BENCH = Path(__file__).resolve().parents[1]

Kind = Literal["perf", "script", "program"]
Need = Literal["namespaces", "peers"]


@dataclasses.dataclass(frozen=True)
class Part:
    """One command. It takes ``--json FILE`` and writes a list of rows there.

    ``what`` is empty for ``tersum perf``, for scripts a path below ``bench/``, for programs one
    below the build's folder. ``verdicts``: exit statuses other than 0 that are no failure.
    """

    kind: Kind
    arguments: tuple[str, ...]
    what: str = ""
    needs: tuple[Need, ...] = ()
    verdicts: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Commands whose rows, one after the other, make one file ``NAME.json``."""

    name: str
    parts: tuple[Part, ...]


def perf(*arguments: str) -> Part:
    """``tersum perf``, which needs namespaces and the programs of other libraries if it is asked
    for them."""
    needs: list[Need] = []
    if "--link" in arguments or "--topology" in arguments:
        needs.append("namespaces")
    if "--compare" in arguments:
        asked = set(arguments[arguments.index("--compare") + 1].split(","))
        needs += ["peers"] if asked & {"all", *LIBRARIES} else []
    return Part("perf", arguments, needs=tuple(needs))


def parse_perf(part: Part) -> argparse.Namespace:
    """The arguments as ``tersum perf`` understands them. Ends the program if it does not."""
    return build_parser().parse_args(["perf", *part.arguments])


def span(smallest: str, largest: str, factor: int = 4) -> tuple[str, ...]:
    """The options of ``tersum perf`` for sizes from ``smallest`` to ``largest``."""
    sizes = ("--min-bytes", smallest, "--max-bytes", largest)
    return sizes if smallest == largest else (*sizes, "--factor", str(factor))


def calls(iterations: int, warmup: int = 3) -> tuple[str, ...]:
    """The options of ``tersum perf`` for timed and untimed calls."""
    return ("--iters", str(iterations), "--warmup", str(warmup))
