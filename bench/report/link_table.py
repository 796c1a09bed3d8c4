"""The table of every format on a 1 Gbit/s link, and its numbers, from runs of `codecs-1gbit`.

    python bench/report/link_table.py FOLDER [FOLDER…]

Each FOLDER is one that `measure_report.py` wrote. Puts docs/codecs-1gbit.json and the rows between
the marks of docs/performance.md in place: formats by the worst of all runs, which are named where
they are above 1.01.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs"
NUMBERS = DOCS / "codecs-1gbit.json"
PAGE = DOCS / "performance.md"
MARKS = ("<!-- codecs-1gbit: begin -->\n", "<!-- codecs-1gbit: end -->\n")
#: Upper ends of the table's rows.
LIMITS = (1.005, 1.01, 1.02, 1.04)
#: From here on a format's runs are named.
NAMED = 1.01


class LinkRow(NamedTuple):
    """A format, and its times over its wire bound, one for each run."""

    codec: str
    times_the_bound: list[float]  # into another array
    in_place: list[float]

    @property
    def worst(self) -> float:
        return max(*self.times_the_bound, *self.in_place)


def read_run(folder: Path) -> dict[str, tuple[float, float]]:
    """The worst into another array and in place. Parts of the measurement take turns in that."""
    found: dict[str, list[float]] = {}
    for row in json.loads((folder / "codecs-1gbit.json").read_text()):
        found.setdefault(row["codec"], []).append(round(row["wire_ratio"], 4))
    return {codec: (max(times[0::2]), max(times[1::2])) for codec, times in found.items()}


def rows_of(runs: Sequence[dict[str, tuple[float, float]]]) -> list[LinkRow]:
    return [
        LinkRow(codec, [run[codec][0] for run in runs], [run[codec][1] for run in runs])
        for codec in runs[0]
    ]


def read_numbers() -> list[LinkRow]:
    return [LinkRow(**row) for row in json.loads(NUMBERS.read_text())]


def _named(row: LinkRow) -> str:
    if row.worst <= NAMED:
        return row.codec
    ways = (", ".join(f"{x:.4f}" for x in runs) for runs in (row.times_the_bound, row.in_place))
    return f"{row.codec} {' / '.join(ways)}"


def render(rows: Iterable[LinkRow]) -> str:
    """What stands between the marks."""
    rows = list(rows)
    lines = ["| times its wire bound | codecs |", "|---|---|"]
    least = 0.0
    for most in (*LIMITS, float("inf")):
        held = [_named(row) for row in rows if least < row.worst <= most]
        above = f"to {most}" if most in LIMITS else f"above {LIMITS[-1]}"
        if held:
            between = ", " if most <= NAMED else "; "
            lines.append(f"| {above} | {between.join(held)} |")
        least = most
    return "\n".join(lines) + "\n"


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    rows = rows_of([read_run(folder) for folder in parser.parse_args().folders])
    text = ",\n".join(" " + json.dumps(row._asdict()) for row in rows)
    NUMBERS.write_text(f"[\n{text}\n]\n")
    before, begin, rest = PAGE.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    PAGE.write_text(before + begin + render(rows) + end + after)


if __name__ == "__main__":
    main()
