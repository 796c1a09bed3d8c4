"""What the pictures of the report have in common: rows, colours, axes, and how they are saved."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tersum.cli.byte_sizes import format_bytes

Row = dict[str, Any]
Rows = list[Row]

CODEC_COLOURS = {
    "exact": "#4a5568",
    "bf16": "#2f855a",
    "int8/128": "#2b6cb0",
    "int4/128": "#c05621",
    "int6/128": "#6b46c1",
    "nf4/64": "#b83280",
}
PLAN_COLOURS = {
    "auto": "#1a202c",
    "two_step": "#2b6cb0",
    "ring": "#c05621",
    "bidirectional_ring": "#2f855a",
    "torus": "#6b46c1",
    "hierarchical": "#b7791f",
    "halving_doubling": "#0e7490",
    "tree": "#b83280",
    "one_shot": "#718096",
}
_STYLE: Any = {
    "svg.hashsalt": "tersum",  # the same numbers give the same file
    "svg.fonttype": "none",  # as text, a tenth of what its outlines take
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.titlesize": 10,
}


class NoRowsError(Exception):
    """A group has no rows to draw; the text names the files."""


def read_rows(folder: Path, name: str) -> Rows:
    """Of ``FOLDER/NAME.json``; none if there is no such file."""
    path = folder / f"{name}.json"
    if not path.exists():
        return []
    rows: Rows = json.loads(path.read_text(encoding="utf-8"))
    return rows


def read_groups(folder: Path, names: Iterable[str]) -> dict[str, Rows]:
    """Rows by name, of the files that are there. NoRowsError if none is."""
    wanted = list(names)
    groups = {name: read_rows(folder, name) for name in wanted}
    found = {name: rows for name, rows in groups.items() if rows}
    if not found:
        raise NoRowsError(f"none of {', '.join(f'{name}.json' for name in wanted)}")
    return found


def style() -> AbstractContextManager[None]:
    """All pictures look alike while the context lasts."""
    return matplotlib.rc_context(_STYLE)


def save(figure: Figure, path: Path) -> None:
    """Writes and forgets the figure."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def sizes_of(rows: Rows) -> list[int]:
    """Array sizes in bytes, the smallest first."""
    return sorted({row["bytes"] for row in rows})


def size_label(size: float) -> str:
    """``65536`` as ``"64K"``."""
    return format_bytes(size).replace(" ", "").replace("iB", "").removesuffix("B")


def size_axis(axes: Axes, sizes: Sequence[int], most: int = 8) -> None:
    """A logarithmic axis of array sizes, at most ``most`` of them named."""
    axes.set_xscale("log", base=2)
    step = -(-len(sizes) // most)
    axes.xaxis.set_major_locator(FixedLocator(list(sizes[::step])))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_label(size)))
    axes.set_xlabel("array on each rank (bytes)")


def plain_numbers(axes: Axes, ticks: Sequence[float]) -> None:
    """A vertical axis with these ticks, written as plain numbers."""
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def band_around_one(axes: Axes, within: float) -> None:
    """A line where a ratio is 1, and grey from 1 / ``within`` to ``within``."""
    axes.axhspan(1 / within, within, color="#a0aec0", alpha=0.3, linewidth=0)
    axes.axhline(1, color="#1a202c", linewidth=0.8)


def nice_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from just below ``low`` to just above ``high``."""
    steps = [factor * 10.0**power for power in range(-6, 10) for factor in (1, 2, 5)]
    below = max(step for step in steps if step <= low)
    above = min(step for step in steps if step >= high)
    return [step for step in steps if below <= step <= above]
