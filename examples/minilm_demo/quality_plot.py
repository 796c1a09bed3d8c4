"""The picture of `quality.py`: how far the embeddings turn, against bits on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

if TYPE_CHECKING:
    from quality import Quality

WAYS = {
    "as it is": ("#8a94a3", "o"),
    "hadamard": ("#2f6fb4", "s"),
    "flatten": ("#d98324", "D"),
}


def way_of(spec: str) -> str:
    return spec.partition("+")[2] or "as it is"


def draw(found: Sequence[Quality], path: Path) -> None:
    """Writes the PNG."""
    pyplot.rcParams.update({"font.size": 10, "font.family": "DejaVu Sans"})
    figure, axis = pyplot.subplots(figsize=(9.6, 6.2), layout="constrained")
    for way, (color, marker) in WAYS.items():
        points = [q for q in found if way_of(q.spec) == way and q.bits < 12]
        axis.scatter(
            [q.bits for q in points],
            [1 - q.cosine_mean for q in points],
            color=color,
            marker=marker,
            s=42,
            label=f"+{way}" if way != "as it is" else way,
            zorder=3,
        )
        for q in points:
            axis.annotate(
                q.spec.partition("+")[0],
                (q.bits, 1 - q.cosine_mean),
                xytext=(5, 3),
                textcoords="offset points",
                fontsize=7,
                color=color,
            )
    axis.set_yscale("log")
    axis.invert_yaxis()
    axis.set_xlabel("bits per value on the wire")
    axis.set_ylabel("1 - mean cosine to the unsplit model (log, better is up)")
    axis.set_title(f"MiniLM-L6 over {found[0].ranks} ranks: quality against wire bits")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
