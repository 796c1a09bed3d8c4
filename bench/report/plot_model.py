"""model.svg: predicted over measured times where nothing shapes the wire."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from plot_style import (
    CODEC_COLOURS,
    Rows,
    band_around_one,
    plain_numbers,
    read_groups,
    save,
    size_axis,
    sizes_of,
    style,
)

_WITHIN = 1.3
_MARKERS = {"two_step": "o", "ring": "s", "one_shot": "^"}
_TRANSPORTS = {"tcp": "loopback TCP", "shm": "shared memory"}


def predicted(rows: Rows) -> Rows:
    """The rows of fixed paths that have a prediction."""
    return [
        row for row in rows if row["predicted_us"] and "auto" not in (row["codec"], row["plan"])
    ]


def _draw_panel(axes: Axes, rows: Rows) -> int:
    """Points of one transport and number of ranks; returns how many are within the band."""
    sizes = sizes_of(rows)
    band_around_one(axes, _WITHIN)
    ratios = []
    paths = list(dict.fromkeys((row["codec"], row["plan"]) for row in rows))
    for i, (codec, plan) in enumerate(paths):
        own = [row for row in rows if (row["codec"], row["plan"]) == (codec, plan)]
        values = [row["predicted_us"] / row["us"] for row in own]
        # Side by side, since most lie close to 1.
        places = [row["bytes"] * 2 ** (1.2 * (i / max(1, len(paths) - 1) - 0.5)) for row in own]
        colour = CODEC_COLOURS.get(codec, "#718096")
        axes.plot(
            places, values, linestyle="", marker=_MARKERS.get(plan, "D"), color=colour, markersize=4
        )
        ratios += values
    axes.set_yscale("log")
    plain_numbers(axes, [0.25, 0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.4, 1.7, 2, 3, 4])
    axes.set_ylim(min(0.6, *ratios) / 1.05, max(1.7, *ratios) * 1.05)
    size_axis(axes, sizes)
    return sum(1 / _WITHIN <= ratio <= _WITHIN for ratio in ratios)


def draw_model(folder: Path, out: Path) -> list[Path]:
    """Returns what was written. NoRowsError if nothing was measured."""
    rows = predicted(read_groups(folder, ["model"])["model"])
    groups: dict[tuple[str, int], Rows] = {}
    for row in rows:
        groups.setdefault((row["transport"], row["ranks"]), []).append(row)
    path = out / "model.svg"
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    with style():
        figure, grid = plt.subplots(
            lines,
            columns,
            figsize=(1 + 4.3 * columns, 1.2 + 2.6 * lines),
            squeeze=False,
            layout="constrained",
        )
        for axes in grid.flat[len(groups) :]:
            axes.set_axis_off()
        for axes, ((transport, ranks), own) in zip(grid.flat, groups.items(), strict=False):
            good = _draw_panel(axes, own)
            axes.set_title(
                f"{_TRANSPORTS[transport]}, {ranks} ranks: {good} of {len(own)} within 30 %"
            )
        for axes in grid[:, 0]:
            axes.set_ylabel("predicted over measured")
        figure.legend(handles=_marks(rows), loc="outside lower center", ncols=8)
        figure.suptitle("What tuning foretells against measured times; grey: within 30 %")
        save(figure, path)
    return [path]


def _marks(rows: Rows) -> list[Line2D]:
    codecs = dict.fromkeys(row["codec"] for row in rows)
    plans = dict.fromkeys(row["plan"] for row in rows)
    marks = [
        Line2D([], [], color=CODEC_COLOURS.get(codec, "#718096"), linewidth=4, label=codec)
        for codec in codecs
    ]
    marks += [
        Line2D(*([], []), linestyle="", marker=_MARKERS.get(plan, "D"), color="#4a5568", label=plan)
        for plan in plans
    ]
    return marks
