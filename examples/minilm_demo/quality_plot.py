"""The picture of `quality.py`: how far the embeddings turn, against bits on the wire."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

if TYPE_CHECKING:
    from quality import Quality

WAYS = {
    "as it is": ("#8a94a3", "o"),
    "hadamard": ("#2f6fb4", "s"),
    "flatten": ("#d98324", "D"),
    "kronecker": ("#3b8a4e", "P"),
    "others": ("#6a4c93", "^"),
}
BITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 16)
#: Where a name may stand, in points from its mark: the nearest first.
STEPS = (
    *((8, 0), (7, 6), (7, -6), (6, 13), (6, -13), (8, 21), (8, -21), (14, 29), (14, -29)),
    *((20, 37), (20, -37), (26, 45), (26, -45), (40, 0), (40, 16), (40, -16), (40, 30), (40, -30)),
    *((70, 0), (70, 20), (70, -20), (70, 40), (70, -40), (100, 10), (100, -10), (100, 30)),
)
FAR = 18.0
#: Decades between a square and its diamond up to which the diamond's name serves both.
BESIDE = 0.25


class Mark(NamedTuple):
    """A point with a name."""

    bits: float
    loss: float
    name: str
    color: str


def way_of(spec: str) -> str:
    way = spec.partition("+")[2].partition(":FILE")[0] or "as it is"
    return way if way in WAYS else "others"


def name_of(quality: Quality, losses: Mapping[str, float]) -> str:
    """A square that stands beside its diamond needs no name. ``losses``: of all specs."""
    way, base = way_of(quality.spec), quality.spec.partition("+")[0]
    if way == "hadamard":
        apart = math.log10(losses[quality.spec] / losses.get(f"{base}+flatten", 1e-9))
        return base if abs(apart) > BESIDE else ""
    return quality.spec if way == "others" else base


def draw(found: Sequence[Quality], path: Path) -> None:
    """Writes the SVG: the same numbers, the same bytes."""
    pyplot.rcParams.update(
        {"font.size": 10, "font.family": "DejaVu Sans", "svg.hashsalt": "tersum"}
    )
    figure, axis = pyplot.subplots(figsize=(15, 11), layout="constrained")
    losses = {q.spec: 1 - q.cosine_mean for q in found}
    marks = []
    for way, (color, marker) in WAYS.items():
        points = [q for q in found if way_of(q.spec) == way]
        axis.scatter(
            [q.bits for q in points],
            [losses[q.spec] for q in points],
            color=color,
            marker=marker,
            s=34,
            label=way if way in ("as it is", "others") else f"+{way}",
            zorder=3,
        )
        marks += [Mark(q.bits, losses[q.spec], name_of(q, losses), color) for q in points]
    axis.set_xscale("log", base=2)
    axis.set_xlim(1, 18)
    axis.set_xticks(BITS, map(str, BITS))
    axis.minorticks_off()
    axis.set_yscale("log")
    axis.invert_yaxis()
    axis.set_xlabel("bits per value on the wire")
    axis.set_ylabel("1 - mean cosine to the unsplit model (log, better is up)")
    axis.set_title(f"MiniLM-L6 over {found[0].ranks} ranks: quality against wire bits")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, loc="upper left")
    figure.canvas.draw()  # settles where everything is
    figure.set_layout_engine("none")
    write_names(axis, marks)
    figure.savefig(path, dpi=150, metadata={"Date": None})
    pyplot.close(figure)


def write_names(axis: Axes, marks: Sequence[Mark]) -> None:
    """Each where it covers the least of other names and marks."""
    point = axis.figure.dpi / 72
    places = axis.transData.transform([(mark.bits, mark.loss) for mark in marks])
    size = 3.0 * point
    taken = [(x - size, y - size, x + size, y + size) for x, y in places]
    for mark, (x, y) in sorted(zip(marks, places, strict=True), key=lambda found: found[0][:2]):
        if not mark.name:
            continue
        note = annotate(axis, mark, 1, 0)
        width, height = note.get_window_extent().padded(0.5 * point).size
        note.remove()
        options = []
        for across, up in ((side * across, up) for across, up in STEPS for side in (1, -1)):
            left = x + across * point - (width if across < 0 else 0)
            box = Bbox.from_bounds(left, y + up * point - height / 2, width, height)
            inside = axis.bbox.contains(box.x0, box.y0) and axis.bbox.contains(box.x1, box.y1)
            covered = overlap(box, np.array(taken))
            far = abs(across) + abs(up)
            options.append((covered + (0 if inside else 1e6) + far, across, up, box))
        _, across, up, box = min(options, key=lambda option: option[0])
        annotate(axis, mark, across, up)
        taken.append(box.extents)


def annotate(axis: Axes, mark: Mark, across: float, up: float) -> Annotation:
    """The name, with a line to its mark where that is far."""
    line = {"arrowstyle": "-", "linewidth": 0.4, "color": mark.color, "shrinkA": 0, "shrinkB": 2}
    return axis.annotate(
        mark.name,
        (mark.bits, mark.loss),
        xytext=(across, up),
        textcoords="offset points",
        horizontalalignment="left" if across > 0 else "right",
        verticalalignment="center",
        fontsize=6.5,
        color=mark.color,
        arrowprops=line if abs(across) + abs(up) > FAR else None,
    )


def overlap(box: Bbox, others: np.ndarray) -> float:
    """The area that it has in common with others, [n, 4]: x0, y0, x1, y1; in pixels."""
    low = np.maximum([box.x0, box.y0], others[:, :2])
    high = np.minimum([box.x1, box.y1], others[:, 2:])
    return float(np.maximum(high - low, 0).prod(axis=1).sum())
