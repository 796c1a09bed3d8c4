"""The demo's picture: time per batch, cut into compute and collectives, for each link and wire."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from demo_report import BASELINE, Quality, Row, unique

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

COMPUTE, COLLECTIVE, BASELINE_COLLECTIVE = "#c9ced6", "#2f6fb4", "#d98324"
INK, FAINT = "#22272e", "#6b7480"


def draw(rows: list[Row], qualities: list[Quality], path: Path) -> None:
    """Writes the PNG. One panel per link, slowest first, and one for the embeddings' quality."""
    links = unique(row.link for row in rows)[::-1]
    pyplot.rcParams.update({"font.size": 10, "font.family": "DejaVu Sans", "text.color": INK})
    wire_count = len(unique(row.wire for row in rows))
    figure, axes = pyplot.subplots(
        1,
        len(links) + 1,
        figsize=(max(9.6, 3.6 * (len(links) + 1)), 2.0 + 0.42 * wire_count),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, link in zip(axes[0], links, strict=False):
        draw_link(axis, [row for row in rows if row.link == link], link)
    draw_quality(axes[0][-1], qualities)
    figure.suptitle(
        "MiniLM-L6, tensor-parallel over 2 processes, stock JAX: one line changes the wire",
        fontsize=13,
        fontweight="bold",
    )
    handles = [
        Rectangle((0, 0), 1, 1, color=color) for color in (COMPUTE, BASELINE_COLLECTIVE, COLLECTIVE)
    ]
    names = ["compute", "collectives: JAX's own", "collectives: tersum"]
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=150, bbox_inches="tight", pad_inches=0.15)
    pyplot.close(figure)


def draw_link(axis: Axes, rows: list[Row], link: str) -> None:
    """Stacked horizontal bars; the number is the time, and the gain over JAX's own."""
    baseline = next((row for row in rows if row.wire == BASELINE), None)
    longest = max(row.batch_seconds for row in rows)
    for place, row in enumerate(rows):
        compute = min(row.compute_seconds, row.batch_seconds) * 1e3
        color = BASELINE_COLLECTIVE if row.wire == BASELINE else COLLECTIVE
        axis.barh(place, compute, color=COMPUTE, height=0.66)
        axis.barh(place, row.batch_seconds * 1e3 - compute, left=compute, color=color, height=0.66)
        text = f" {row.batch_seconds * 1e3:.0f} ms"
        if baseline is not None and row is not baseline:
            text += f"  {baseline.batch_seconds / row.batch_seconds:.2f}x"
        axis.text(row.batch_seconds * 1e3, place, text, va="center", fontsize=9)
    axis.set_xlim(0, longest * 1e3 * 1.42)
    axis.set_yticks(range(len(rows)), [wire_name(row.wire) for row in rows], color=INK)
    axis.set_title(f"{link.replace('gbit', ' Gbit/s')}: time per batch", fontsize=10.5)
    axis.set_xlabel("ms", color=FAINT)
    clean(axis)
    if axis.get_ylim()[0] < axis.get_ylim()[1]:
        axis.invert_yaxis()  # shared by all panels, hence once


def wire_name(wire: str) -> str:
    return "JAX's own, f32" if wire == BASELINE else wire


def draw_quality(axis: Axes, qualities: list[Quality]) -> None:
    """1 - cosine to the single-process embeddings, from the mean to the worst text; log scale."""
    floor = 1e-8  # what float32 can tell from 1
    for place, item in enumerate(qualities):
        mean, worst = (max(floor, 1 - value) for value in (item.cosine_mean, item.cosine_min))
        color = BASELINE_COLLECTIVE if item.wire == BASELINE else COLLECTIVE
        axis.plot([mean, worst], [place, place], color=color, linewidth=2, alpha=0.5)
        axis.plot([mean], [place], "o", color=color, markersize=7)
        axis.plot([worst], [place], "|", color=color, markersize=9, markeredgewidth=2)
    axis.set_xscale("log")
    axis.set_xlim(floor / 2, 1)
    axis.set_xlabel("1 - cosine: mean (dot) to worst text (bar)", color=FAINT)
    axis.set_title("distance to one process's embeddings", fontsize=10.5)
    clean(axis)


def clean(axis: Axes) -> None:
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", colors=FAINT)
    axis.grid(axis="x", color="#e6e9ed", linewidth=0.8)
    axis.set_axisbelow(True)
