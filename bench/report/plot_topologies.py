"""topologies.svg: how much faster quantized sums are than bf16 ones on every topology."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from plot_style import CODEC_COLOURS, Rows, read_groups, save, style
from report_wires import AT_16_MIB, TOPOLOGY

_CODECS = ("int8/128", "int4/128")
_LIMITS = {"int8/128": 16 / 8.125, "int4/128": 16 / 4.125}


def gains(rows: Rows) -> dict[str, float]:
    """Speed over the bf16 wire, by codec; of the fastest plan where several were measured."""
    fastest: dict[str, float] = {}
    for row in rows:
        time = fastest.get(row["codec"], float("inf"))
        fastest[row["codec"]] = min(time, row["time_us"])
    return {codec: fastest["bf16"] / fastest[codec] for codec in _CODECS}


def draw_topologies(folder: Path, out: Path) -> list[Path]:
    """Returns what was written. NoRowsError if nothing was measured."""
    groups = read_groups(folder, [TOPOLOGY + topology for topology, _ in AT_16_MIB])
    path = out / "topologies.svg"
    with style():
        figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
        by_topology = [gains(rows) for rows in groups.values()]
        for i, codec in enumerate(_CODECS):
            heights = [gain[codec] for gain in by_topology]
            places = [x + 0.4 * (i - 0.5) for x in range(len(heights))]
            bars = axes.bar(places, heights, 0.38, color=CODEC_COLOURS[codec], label=codec)
            axes.bar_label(bars, fmt="%.2f")
            axes.axhline(_LIMITS[codec], color=CODEC_COLOURS[codec], linestyle=":", linewidth=1)
        axes.set_xticks(range(len(groups)), [name.removeprefix(TOPOLOGY) for name in groups])
        axes.set_ylabel("times as fast as bf16")
        axes.set_title("all_reduce of 16 MiB a rank; dotted: what the wire formats allow")
        axes.legend(loc="upper left", ncols=2)
        axes.set_ylim(0, 4.8)
        save(figure, path)
    return [path]
