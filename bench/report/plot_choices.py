"""choices.svg: what ``auto`` took over the quickest that was named, on shaped wires and without."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from plot_style import (
    CODEC_COLOURS,
    PLAN_COLOURS,
    NoRowsError,
    Rows,
    band_around_one,
    plain_numbers,
    read_groups,
    save,
    size_axis,
    style,
)
from report_wires import SWEEPS, sweep_name
from sweep_rows import choices

_WITHIN = 1.05
# An open codec is drawn beside those that were named.
_COLOURS = {**CODEC_COLOURS, "auto": PLAN_COLOURS["auto"]}


class Taken(NamedTuple):
    """One choice: what was asked for, the size, and its time over the best one's."""

    asked: str
    size: int
    over_best: float


def taken_on_wires(sweeps: Iterable[Rows]) -> list[Taken]:
    """Of every plan over sizes, one topology after the other."""
    return [
        Taken(choice.codec, choice.size, choice.auto_us / choice.best_us)
        for rows in sweeps
        for choice in choices(rows)
    ]


def taken_without(rows: Rows) -> list[Taken]:
    """On loopback and in shared memory, by the rows of ``model``."""
    return [
        Taken(row["codec"], row["bytes"], row["us"] / row["best_us"])
        for row in rows
        if "best_us" in row
    ]


def _draw_panel(axes: Axes, title: str, found: list[Taken]) -> None:
    band_around_one(axes, _WITHIN)
    asked = list(dict.fromkeys(one.asked for one in found))
    for i, codec in enumerate(asked):
        own = [one for one in found if one.asked == codec]
        good = sum(one.over_best <= _WITHIN for one in own)
        # Side by side, since most lie close to 1.
        places = [one.size * 2 ** (0.4 * (i - (len(asked) - 1) / 2)) for one in own]
        axes.scatter(
            *(places, [one.over_best for one in own], 12),
            **{"color": _COLOURS.get(codec, "#718096"), "alpha": 0.7},
            label=f"{codec}: {good} of {len(own)} within 5 %",
        )
    ratios = [one.over_best for one in found]
    axes.set_yscale("log")
    plain_numbers(axes, [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2, 3, 4])
    axes.set_ylim(min(0.9, *ratios) / 1.03, max(1.2, *ratios) * 1.03)
    size_axis(axes, sorted({one.size for one in found}))
    axes.set_title(title)
    axes.legend(loc="upper right")


def draw_choices(folder: Path, out: Path) -> list[Path]:
    """Returns what was written. NoRowsError if nothing was chosen in what was measured."""
    groups = read_groups(folder, [*map(sweep_name, SWEEPS), "model"])
    unshaped = taken_without(groups.pop("model", []))
    shaped = taken_on_wires(groups.values())
    panels = [
        (title, found)
        for title, found in (
            ("shaped wires, every topology", shaped),
            ("loopback and shared memory", unshaped),
        )
        if found
    ]
    if not panels:
        raise NoRowsError("a choice in no row")
    path = out / "choices.svg"
    with style():
        figure, grid = plt.subplots(
            *(1, len(panels)), figsize=(5 * len(panels), 3.8), squeeze=False, layout="constrained"
        )
        for axes, (title, found) in zip(grid.flat, panels, strict=True):
            _draw_panel(axes, title, found)
        grid[0, 0].set_ylabel("time of auto over the best that was named")
        figure.suptitle("What auto took beside the best fixed choice; grey: within 5 %")
        save(figure, path)
    return [path]
