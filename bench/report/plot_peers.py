"""peers-tcp.svg and peers-shm.svg: other CPU libraries' times in terms of tersum's."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from plot_style import (
    CODEC_COLOURS,
    Rows,
    nice_ticks,
    plain_numbers,
    read_groups,
    save,
    size_label,
    sizes_of,
    style,
)

_TRANSPORTS = {"tcp": "loopback TCP", "shm": "shared memory"}
_RANKS = (2, 4, 8)
_LIBRARIES = {
    "gloo": ("Gloo", "#a0aec0"),
    "openmpi": ("Open MPI", "#b7791f"),
    "mpich": ("MPICH", "#2f855a"),
    "oneccl": ("oneCCL", "#6b46c1"),
}
_OWN = ("exact", "int8/128", "int4/128")
_BASES = ("exact", "int8/128")


def own_time(rows: Rows, size: int, codec: str) -> float | None:
    """Microseconds of tersum, under the others' loop where that was measured, else in Python."""
    for library in ("tersum-c++", "tersum"):
        for row in rows:
            if (row["library"], row["bytes"], row["codec"]) == (library, size, codec):
                return float(row["time_us"])
    return None


def relative_times(rows: Rows, size: int, base: str) -> dict[str, float]:
    """Of each library, and of tersum with each codec, over tersum's time with codec ``base``."""
    unit = own_time(rows, size, base)
    if unit is None:
        return {}
    times = {
        row["library"]: row["time_us"] / unit
        for row in rows
        if row["bytes"] == size and row["library"] in _LIBRARIES
    }
    for codec in _OWN:
        own = own_time(rows, size, codec)
        if own is not None:
            times[codec] = own / unit
    return times


def _draw_panel(axes: Axes, rows: Rows, base: str) -> None:
    sizes = sizes_of(rows)
    contenders = [*_LIBRARIES, *_OWN]
    width = 0.84 / len(contenders)
    tallest, least = 1.0, 1.0
    for i, name in enumerate(contenders):
        shown = [(x, relative_times(rows, size, base).get(name)) for x, size in enumerate(sizes)]
        places = [x + (i - (len(contenders) - 1) / 2) * width for x, time in shown if time]
        heights = [time for _, time in shown if time]
        if not heights:
            continue
        colour = _LIBRARIES[name][1] if name in _LIBRARIES else CODEC_COLOURS[name]
        label = _LIBRARIES[name][0] if name in _LIBRARIES else f"tersum {name}"
        edge = None if name in _LIBRARIES else "#1a202c"
        bars = axes.bar(
            places, heights, width * 0.92, color=colour, label=label, edgecolor=edge, linewidth=0.5
        )
        texts = [f"{height:.2g}" if height < 10 else f"{height:.0f}" for height in heights]
        axes.bar_label(bars, texts, fontsize=5.5, padding=1, rotation=90)
        tallest, least = max(tallest, *heights), min(least, *heights)
    axes.set_yscale("log")
    plain_numbers(axes, nice_ticks(least, tallest))
    axes.set_ylim(least / 1.6, tallest * 2)
    axes.axhline(1, color="#1a202c", linewidth=0.8)
    axes.grid(axis="x", visible=False)
    axes.set_xticks(range(len(sizes)), [size_label(size) for size in sizes])
    axes.set_xlabel("array on each rank (bytes)")


def _apart(groups: dict[str, Rows]) -> str:
    """How far the CPUs were from each other, where the rows tell."""
    seen = [
        distance
        for rows in groups.values()
        for row in rows
        for distance in row.get("core_distances_ns") or ()
        if distance is not None
    ]
    return f"; CPUs {min(seen):.0f} to {max(seen):.0f} ns apart" if seen else ""


def draw_peers(transport: str, folder: Path, out: Path) -> list[Path]:
    """Returns what was written. NoRowsError if nothing was measured."""
    groups = read_groups(folder, [f"{transport}-{ranks}" for ranks in _RANKS])
    path = out / f"peers-{transport}.svg"
    widths = [1 + len(sizes_of(rows)) for rows in groups.values()]
    with style():
        figure, grid = plt.subplots(
            *(len(_BASES), len(groups)),
            figsize=(max(9, 1 + sum(widths)), 5.6),
            squeeze=False,
            width_ratios=widths,
            layout="constrained",
        )
        for line, base in zip(grid, _BASES, strict=True):
            for axes, rows in zip(line, groups.values(), strict=True):
                _draw_panel(axes, rows, base)
                axes.set_title(f"{rows[0]['ranks']} ranks, over tersum {base}")
            line[0].set_ylabel(f"time over that of tersum {base}")
        found = {}
        for axes in grid[0]:
            for mark, label in zip(*axes.get_legend_handles_labels(), strict=True):
                found[label] = mark
        figure.legend(
            list(found.values()), list(found), loc="outside lower center", ncols=len(found)
        )
        figure.suptitle(
            f"all_reduce of f32 through {_TRANSPORTS[transport]}: times of CPU libraries as "
            "multiples of tersum's (above 1: slower);\ntersum called from C++ where that was "
            f"measured, else from Python{_apart(groups)}"
        )
        save(figure, path)
    return [path]
