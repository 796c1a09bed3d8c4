"""Draws docs/figures/topologies.svg from the JSON files of ``tersum perf --topology … --json``.

plot_topologies.py OUT.svg pair.json ring4.json …
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

_CODECS = ("int8/128", "int4/128")
_LIMITS = {"int8/128": 16 / 8.125, "int4/128": 16 / 4.125}
_COLOURS = {"int8/128": "#2b6cb0", "int4/128": "#c05621"}


def gains(file: Path) -> dict[str, float]:
    """Speed over the bf16 wire, by codec; of the fastest plan where several were measured."""
    fastest: dict[str, float] = {}
    for row in json.loads(file.read_text(encoding="utf-8")):
        time = fastest.get(row["codec"], float("inf"))
        fastest[row["codec"]] = min(time, row["time_us"])
    return {codec: fastest["bf16"] / fastest[codec] for codec in _CODECS}


def main() -> int:
    """Reads, draws, writes."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    out, files = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    plt.rcParams["svg.hashsalt"] = "tersum"  # the same numbers give the same file
    figure, axes = plt.subplots(figsize=(8, 3.6))
    for i, codec in enumerate(_CODECS):
        heights = [gains(file)[codec] for file in files]
        places = [x + 0.4 * (i - 0.5) for x in range(len(files))]
        bars = axes.bar(places, heights, 0.38, color=_COLOURS[codec], label=codec)
        axes.bar_label(bars, fmt="%.2f", fontsize=8)
        axes.axhline(_LIMITS[codec], color=_COLOURS[codec], linestyle=":", linewidth=1)
    axes.set_xticks(range(len(files)), [file.stem for file in files])
    axes.set_ylabel("times as fast as bf16")
    axes.set_title("all_reduce of 16 MiB a rank; dotted: what the wire formats allow", fontsize=10)
    axes.legend(loc="upper left", ncols=2, fontsize=8)
    axes.set_ylim(0, 4.8)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
