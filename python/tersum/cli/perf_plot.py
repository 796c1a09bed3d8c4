"""Draws the rows of ``tersum perf``: bus bandwidth by size, and gains over the first contender."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tersum.cli.byte_sizes import format_bytes
from tersum.cli.perf_options import Row

# Okabe and Ito's colours, which the colour-blind can tell apart; grey is for other libraries.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_OTHER = "#7F7F7F"
_MARKERS = "osD^vPX"
_INK = "#333333"
_GRID = "#E5E5E5"

Series = dict[str, list[Row]]


def draw(rows: Sequence[Row], path: Path, link: str | None = None) -> None:
    """Writes a PNG to ``path`` (whatever its suffix says)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    series = _series(rows)
    style: dict[Any, Any] = {
        "font.size": 10,
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "text.color": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with pyplot.rc_context(style):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
        looks = _looks(series)
        _draw_bandwidth(left, series, looks)
        _draw_gain(right, series, looks)
        for axes in (left, right):
            _finish(axes, rows)
        figure.suptitle(_title(rows, link), fontsize=12, fontweight="bold", x=0.01, ha="left")
        figure.savefig(path, dpi=150, format="png", facecolor="white")
        pyplot.close(figure)


def _series(rows: Sequence[Row]) -> Series:
    plans = {row["plan"] for row in rows if row["library"] == "tersum"}
    series: Series = {}
    for row in rows:
        if row["library"] != "tersum":
            label = row["library"]
        else:
            label = row["codec"] + (f" · {row['plan']}" if len(plans) > 1 else "")
        series.setdefault(label, []).append(row)
    return series


def _looks(series: Series) -> dict[str, dict[str, Any]]:
    looks: dict[str, dict[str, Any]] = {}
    used = 0
    for label, rows in series.items():
        if rows[0]["library"] != "tersum":
            looks[label] = {"color": _OTHER, "marker": "x", "linestyle": "--"}
            continue
        looks[label] = {
            "color": _COLOURS[used % len(_COLOURS)],
            "marker": _MARKERS[used % len(_MARKERS)],
            "linestyle": "-",
        }
        used += 1
    return looks


def _draw_bandwidth(axes: Any, series: Series, looks: dict[str, dict[str, Any]]) -> None:
    """Medians, with the range from the slowest to the fastest iteration as a band."""
    for label, rows in series.items():
        sizes = [row["bytes"] for row in rows]
        scale = [row["busbw_gb_s"] * row["time_us"] for row in rows]
        low = [s / row["time_us_max"] for s, row in zip(scale, rows, strict=True)]
        high = [s / row["time_us_min"] for s, row in zip(scale, rows, strict=True)]
        look = looks[label]
        axes.fill_between(sizes, low, high, color=look["color"], alpha=0.12, linewidth=0)
        axes.plot(sizes, [row["busbw_gb_s"] for row in rows], label=label, markersize=5, **look)
    axes.set_yscale("log")
    axes.set_title("Bus bandwidth (GB/s of values)", loc="left", fontsize=10)
    _plain_log_axis(axes.yaxis)
    axes.legend(frameon=False, fontsize=9, handlelength=2.4)


def _draw_gain(axes: Any, series: Series, looks: dict[str, dict[str, Any]]) -> None:
    base_label, base = next(iter(series.items()))
    for label, rows in series.items():
        gains = [b["time_us"] / row["time_us"] for b, row in zip(base, rows, strict=False)]
        sizes = [row["bytes"] for row in rows][: len(gains)]
        axes.plot(sizes, gains, markersize=5, **looks[label])
        if label != base_label:
            axes.annotate(
                f"{gains[-1]:.2f}x",
                (sizes[-1], gains[-1]),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                color=looks[label]["color"],
                fontsize=9,
            )
    axes.set_ylim(bottom=0)
    axes.set_title(f"Speed against {base_label}", loc="left", fontsize=10)


def _finish(axes: Any, rows: Sequence[Row]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    sizes = sorted({row["bytes"] for row in rows})
    axes.set_xscale("log", base=2)
    shown = sizes[:: -(-len(sizes) // 8)]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([format_bytes(size) for size in shown])
    axes.set_xlabel("Array on each rank")
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.08)


def _plain_log_axis(axis: Any) -> None:
    """Ticks at 1, 2, 5, 10, …, written as people write them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _title(rows: Sequence[Row], link: str | None) -> str:
    row = rows[0]
    where = f"links of {link}" if link else f"transport {row['transport']}"
    return f"{row['op']} of {row['dtype']}, {row['ranks']} ranks, {where}"
