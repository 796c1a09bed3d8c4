"""topologies.svg: how much faster quantized sums are than bf16 ones on every topology."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from plot_style import Rows, read_groups, save
from report_wires import AT_16_MIB, TOPOLOGY

_CODECS = ("int8/128", "int4/128")
_LIMITS = {"int8/128": 16 / 8.125, "int4/128": 16 / 4.125}
_COLOURS = {"int8/128": "#2b6cb0", "int4/128": "#c05621"}


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
    with matplotlib.rc_context({"svg.hashsalt": "tersum"}):
        figure, axes = plt.subplots(figsize=(8, 3.6))
        by_topology = [gains(rows) for rows in groups.values()]
        for i, codec in enumerate(_CODECS):
            heights = [gain[codec] for gain in by_topology]
            places = [x + 0.4 * (i - 0.5) for x in range(len(heights))]
            bars = axes.bar(places, heights, 0.38, color=_COLOURS[codec], label=codec)
            axes.bar_label(bars, fmt="%.2f", fontsize=8)
            axes.axhline(_LIMITS[codec], color=_COLOURS[codec], linestyle=":", linewidth=1)
        axes.set_xticks(range(len(groups)), [name.removeprefix(TOPOLOGY) for name in groups])
        axes.set_ylabel("times as fast as bf16")
        title = "all_reduce of 16 MiB a rank; dotted: what the wire formats allow"
        axes.set_title(title, fontsize=10)
        axes.legend(loc="upper left", ncols=2, fontsize=8)
        axes.set_ylim(0, 4.8)
        figure.tight_layout()
        save(figure, path)
    return [path]
