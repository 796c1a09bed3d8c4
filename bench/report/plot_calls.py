"""calls.svg: calls in flight together beside one call, many tensors coalesced beside many calls."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from plot_style import CODEC_COLOURS, Row, Rows, read_groups, save, size_label, style

_ONE = "one call"


def way_of(row: Row) -> str:
    """How the array was reduced: ``"one call"``, ``"3 in flight"``, ``"1000 coalesced"``, …"""
    return str(row.get("split") or _ONE)


def split_groups(rows: Rows) -> dict[str, Rows]:
    """Rows by what is compared: calls in flight by their wire, and many tensors. A row of one call
    belongs to the array of its size and its wire."""
    groups: dict[str, Rows] = {}
    for row in rows:
        rate = row.get("link_bits_per_s", 0)
        wire = f"{rate / 1e9:g} Gbit/s" if rate else "loopback TCP"
        groups.setdefault(f"{size_label(row['bytes'])}, {wire}", []).append(row)
    return groups


def _draw_panel(axes: Axes, rows: Rows) -> None:
    """One bar for each codec and way, with its time and its ratio to one call's."""
    codecs = list(dict.fromkeys(row["codec"] for row in rows))
    ways = sorted({way_of(row) for row in rows}, key=lambda way: (way != _ONE, way))
    names: list[str] = []
    for codec in codecs:
        times = {way_of(row): row["time_us"] / 1e3 for row in rows if row["codec"] == codec}
        for i, way in enumerate(way for way in ways if way in times):
            colour = CODEC_COLOURS.get(codec, "#718096")
            bar = axes.barh(len(names), times[way], color=colour, alpha=1 - 0.55 * i / len(ways))
            ratio = f" ({times[way] / times[_ONE]:.2f}x)" if way != _ONE and _ONE in times else ""
            axes.bar_label(bar, [f"{times[way]:.4g} ms{ratio}"], fontsize=7, padding=3)
            names.append(f"{codec}: {way}")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.5)
    axes.set_xlabel("time (ms); in brackets over one call")


def draw_calls(folder: Path, out: Path) -> list[Path]:
    """Returns what was written. NoRowsError if nothing was measured."""
    groups = split_groups(read_groups(folder, ["calls"])["calls"])
    path = out / "calls.svg"
    with style():
        figure, panels = plt.subplots(
            1, len(groups), figsize=(3.9 * len(groups), 2.6), squeeze=False, layout="constrained"
        )
        for axes, (name, rows) in zip(panels.flat, groups.items(), strict=True):
            _draw_panel(axes, rows)
            axes.set_title(name)
        figure.suptitle("all_reduce of one array, two ranks: whole, and cut into calls")
        save(figure, path)
    return [path]
