"""The picture of `quality.py`: how far the embeddings turn, against bits on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

if TYPE_CHECKING:
    from quality import Quality

WAYS = {
    "as it is": ("#8a94a3", "o"),
    "hadamard": ("#2f6fb4", "s"),
    "flatten": ("#d98324", "D"),
    "others": ("#6a4c93", "^"),
}


def way_of(spec: str) -> str:
    way = spec.partition("+")[2] or "as it is"
    return way if way in WAYS else "others"


#: Names that would lie on others: which side of the point, and how far up in points.
PLACES = {
    "nf4/64+flatten": (-1, -3),
    "int4/64+adaptive": (1, -9),
    "int4/128+flatten": (-1, -3),
    "mxfp4+flatten": (1, -9),
    "nvfp4+flatten": (1, -10),
    "mxfp8:e4m3+flatten": (1, -10),
    "mxfp6:e2m3+flatten": (1, -9),
    "mxint8+flatten": (1, -7),
    "int8/128": (-1, -9),
    "int8/128+rows:384": (-1, -20),
    "int4/32+shiftadd": (1, -2),
    "int7/128": (-1, -10),
    "int4/32": (1, -3),
    "mxfp4": (-1, 1),
    "nf4/64": (-1, -9),
    "mxfp6:e3m2": (1, 2),
    "mxint8": (1, 1),
    "int6/128+sparse:0.5%": (1, 2),
    "int6/128+mixed": (1, 0),
    "int6/128+flatten": (-1, -3),
    "int5/128": (1, -3),
}


def label(axis: Axes, q: Quality, way: str, color: str) -> None:
    """A square stands beside its diamond and needs no name."""
    base = q.spec if way == "others" else q.spec.partition("+")[0]
    if way == "hadamard" and base != "nf4/64":
        return
    usual = (1 if way in ("flatten", "others") or base.startswith("mx") else -1, -3)
    side, up = PLACES.get(q.spec, usual)
    axis.annotate(
        base,
        (q.bits, 1 - q.cosine_mean),
        xytext=(7 * side, up),
        textcoords="offset points",
        horizontalalignment="left" if side > 0 else "right",
        fontsize=7,
        color=color,
    )


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
            label=f"+{way}" if way in ("hadamard", "flatten") else way,
            zorder=3,
        )
        for q in points:
            label(axis, q, way, color)
    axis.set_xlim(1, 10)
    axis.set_yscale("log")
    axis.invert_yaxis()
    axis.set_xlabel("bits per value on the wire")
    axis.set_ylabel("1 - mean cosine to the unsplit model (log, better is up)")
    axis.set_title(f"MiniLM-L6 over {found[0].ranks} ranks: quality against wire bits")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
