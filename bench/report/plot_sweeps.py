"""sweep*.svg: every plan over sizes on every topology. prediction.svg: the cost model beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator
from plot_style import (
    CODEC_COLOURS,
    PLAN_COLOURS,
    Rows,
    nice_ticks,
    plain_numbers,
    save,
    size_axis,
    sizes_of,
    style,
)
from report_wires import CODECS
from sweep_rows import WITHIN, off_by, read_sweeps

_COLUMNS = 3
# int8/128, which the project is about, has the plain name.
_FILES = {"int8/128": "sweep.svg", "bf16": "sweep-bf16.svg", "int4/128": "sweep-int4.svg"}


def draw_sweeps(folder: Path, out: Path) -> list[Path]:
    """One picture a codec; returns what was written. NoRowsError if no sweep was measured."""
    sweeps = read_sweeps(folder)
    written = []
    with style():
        for codec, name in _FILES.items():
            _draw_codec(codec, sweeps, out / name)
            written.append(out / name)
    return written


def _draw_codec(codec: str, sweeps: dict[str, Rows], path: Path) -> None:
    lines = -(-len(sweeps) // _COLUMNS)
    figure, grid = plt.subplots(
        lines, _COLUMNS, figsize=(11, 2.7 * lines + 1.1), squeeze=False, layout="constrained"
    )
    panels = list(grid.flat)
    plans: set[str] = set()
    for axes, (topology, rows) in zip(panels, sweeps.items(), strict=False):
        own = [row for row in rows if row["codec"] == codec]
        plans |= _draw_panel(axes, own)
        axes.set_title(f"{topology}, {own[0]['ranks']} ranks" if own else topology)
    for axes in panels[len(sweeps) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("time over the wires' bound")
    marks = [Line2D([], [], **_line_of(plan), label=plan) for plan in PLAN_COLOURS if plan in plans]
    marks.append(Line2D([], [], color="#4a5568", linestyle=":", label="predicted"))
    figure.legend(handles=marks, loc="outside lower center", ncols=min(len(marks), 10))
    figure.suptitle(
        f"all_reduce with {codec} by each plan: measured time over what the wires allow at best"
    )
    save(figure, path)


def _line_of(plan: str) -> dict[str, Any]:
    """How a plan is drawn: auto wide and pale, below the one that it took."""
    wide = plan == "auto"
    return {
        **{"color": PLAN_COLOURS[plan], "marker": "o", "markersize": 6 if wide else 3},
        **{"linewidth": 4 if wide else 1.2, "alpha": 0.3 if wide else 1},
    }


def _draw_panel(axes: Axes, rows: Rows) -> set[str]:
    """Lines of one topology; returns its plans."""
    plans = {str(row["plan"]) for row in rows}
    ratios = [1.0]
    for plan in (plan for plan in PLAN_COLOURS if plan in plans):
        own = sorted((row for row in rows if row["plan"] == plan), key=lambda row: row["bytes"])
        sizes = [row["bytes"] for row in own]
        times = [row["time_us"] / row["wire_bound_us"] for row in own]
        axes.plot(sizes, times, **_line_of(plan))
        ratios += times
        known = [row for row in own if row["predicted_us"]]
        if known and plan != "auto":
            predicted = [row["predicted_us"] / row["wire_bound_us"] for row in known]
            known_sizes = [row["bytes"] for row in known]
            axes.plot(known_sizes, predicted, ":", color=PLAN_COLOURS[plan], linewidth=1)
            ratios += predicted
    axes.set_yscale("log")
    plain_numbers(axes, [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.2, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 50, 100])
    axes.set_ylim(min(ratios) / 1.1, max(ratios) * 1.15)
    size_axis(axes, sizes_of(rows), most=6)
    return plans


def draw_predictions(folder: Path, out: Path) -> list[Path]:
    """Predicted against measured, and their ratio. NoRowsError if no sweep was measured."""
    sweeps = read_sweeps(folder)
    rows = [row for own in sweeps.values() for row in own if off_by(row) is not None]
    path = out / "prediction.svg"
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
        times = [row["time_us"] / 1e3 for row in rows]
        span = [min(times) / 1.5, max(times) * 1.5]
        for axes, factors in ((left, span), (right, [1.0, 1.0])):
            low = [factor * (1 - WITHIN) for factor in factors]
            high = [factor * (1 + WITHIN) for factor in factors]
            axes.fill_between(span, low, high, color="#a0aec0", alpha=0.35, linewidth=0)
            axes.plot(span, factors, color="#4a5568", linewidth=0.8)
            axes.set_xscale("log")
            axes.set_xlabel("measured (ms)")
            axes.xaxis.set_major_locator(LogLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for codec in CODECS:
            own = [row for row in rows if row["codec"] == codec]
            good = sum(abs(off_by(row) or 0) <= WITHIN for row in own)
            label = f"{codec}: {good} of {len(own)} within {WITHIN:.0%}"
            measured = [row["time_us"] / 1e3 for row in own]
            predicted = [row["predicted_us"] / 1e3 for row in own]
            ratios = [1 + (off_by(row) or 0) for row in own]
            for axes, values in ((left, predicted), (right, ratios)):
                axes.scatter(
                    *(measured, values), 9, color=CODEC_COLOURS[codec], alpha=0.6, label=label
                )
        left.set_yscale("log")
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        left.set_ylabel("predicted (ms)")
        right.set_ylabel("predicted over measured")
        right.set_yscale("log")
        ratios = [1 + (off_by(row) or 0) for row in rows]
        wide = max(ratios) > 4 * min(ratios)
        fine = [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2]
        plain_numbers(right, nice_ticks(min(ratios), max(ratios)) if wide else fine)
        right.set_ylim(min(0.8, *ratios) / 1.05, max(1.25, *ratios) * 1.05)
        left.legend(loc="upper left")
        figure.suptitle(
            f"The cost model against measured times: {len(rows)} points on {len(sweeps)} "
            f"topologies; grey: within {WITHIN:.0%}"
        )
        save(figure, path)
    return [path]
