"""links.svg: two ranks on a shaped link and a bare stream. auto.svg: ``codec="auto"`` and exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from plot_style import (
    CODEC_COLOURS,
    Rows,
    plain_numbers,
    read_groups,
    save,
    size_axis,
    sizes_of,
    style,
)
from report_wires import CODECS

_LINKS = {"link-1gbit": "1 Gbit/s", "link-5gbit": "5 Gbit/s"}
_AUTO = {
    "auto-shm": ("shared memory", "#4a5568"),
    "auto-tcp": ("loopback TCP", "#2b6cb0"),
    "auto-10gbit": ("10 Gbit/s", "#2f855a"),
    "auto-5gbit": ("5 Gbit/s", "#c05621"),
    "auto-1gbit": ("1 Gbit/s", "#6b46c1"),
}
_SLOWER = 1.03  # the bar of auto


def over_bare(rows: Rows, codec: str) -> list[tuple[int, float]]:
    """Sizes, and the codec's time over that of a plain stream of the same bytes."""
    times = {
        (row["library"], row["bytes"]): row["time_us"] for row in rows if row["codec"] == codec
    }
    return [
        (size, times["tersum", size] / times["bare", size])
        for size in sizes_of(rows)
        if ("tersum", size) in times and ("bare", size) in times
    ]


def over_bound(rows: Rows, codec: str) -> list[tuple[int, float]]:
    """Sizes, and the codec's time over what the wire needs for its bytes."""
    own = [row for row in rows if (row["library"], row["codec"]) == ("tersum", codec)]
    return sorted((row["bytes"], row["wire_ratio"]) for row in own)


def _draw_link(axes: Axes, rows: Rows) -> None:
    ratios = [1.0]
    for codec in CODECS:
        for points, line, marker in (
            (over_bare(rows, codec), "-", "o"),
            (over_bound(rows, codec), ":", ""),
        ):
            values = [ratio for _, ratio in points]
            sizes = [size for size, _ in points]
            axes.plot(sizes, values, line, marker=marker, markersize=4, color=CODEC_COLOURS[codec])
            ratios += values
    axes.axhline(1, color="#1a202c", linewidth=0.8)
    axes.set_ylim(min(ratios) - 0.02, max(ratios) + 0.02)
    size_axis(axes, sizes_of(rows))


def draw_links(folder: Path, out: Path) -> list[Path]:
    """Returns what was written. NoRowsError if nothing was measured."""
    groups = read_groups(folder, _LINKS)
    path = out / "links.svg"
    with style():
        figure, panels = plt.subplots(
            1, len(groups), figsize=(1 + 4 * len(groups), 3.8), squeeze=False, layout="constrained"
        )
        for axes, (name, rows) in zip(panels.flat, groups.items(), strict=True):
            _draw_link(axes, rows)
            axes.set_title(_LINKS[name])
        panels[0, 0].set_ylabel("time over that of the wire alone")
        marks = [
            Line2D([], [], color=CODEC_COLOURS[codec], marker="o", markersize=4, label=codec)
            for codec in CODECS
        ]
        grey: Any = {"color": "#4a5568"}
        marks.append(Line2D([], [], **grey, marker="o", markersize=4, label="over a bare stream"))
        marks.append(Line2D([], [], **grey, linestyle=":", label="over the wire's bound"))
        figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
        figure.suptitle(
            "all_reduce of f32 between two ranks on a shaped link, beside the bare wire"
        )
        save(figure, path)
    return [path]


def draw_auto(folder: Path, out: Path) -> list[Path]:
    """Returns what was written. NoRowsError if nothing was measured."""
    groups = read_groups(folder, _AUTO)
    path = out / "auto.svg"
    with style():
        figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
        ratios = [1.0]
        for name, rows in groups.items():
            label, colour = _AUTO[name]
            values = [row["auto_us"] / row["exact_us"] for row in rows]
            sizes = [row["bytes"] for row in rows]
            axes.plot(sizes, values, color=colour, linewidth=1.2, label=label)
            for row, value in zip(rows, values, strict=True):
                face = "white" if row["same_path"] else colour
                axes.plot(
                    *(row["bytes"], value), "o", color=colour, markerfacecolor=face, markersize=5
                )
            ratios += values
        axes.axhline(1, color="#1a202c", linewidth=0.8)
        bar = f"{_SLOWER - 1:.0%} slower than exact"
        axes.axhline(_SLOWER, color="#c53030", linewidth=1, linestyle="--", label=bar)
        axes.plot([], [], "o", color="#4a5568", markerfacecolor="white", label="took exact itself")
        axes.set_yscale("log")
        plain_numbers(axes, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.2, 1.5, 2, 3])
        axes.set_ylim(min(ratios) / 1.1, max(ratios) * 1.1)
        every = sorted({size for rows in groups.values() for size in sizes_of(rows)})
        size_axis(axes, every, most=12)
        axes.set_ylabel('time of codec="auto" over exact')
        axes.set_title('all_reduce of f32, two ranks: codec="auto" against exact sums')
        figure.legend(loc="outside right center")
        save(figure, path)
    return [path]
