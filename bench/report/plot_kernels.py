"""kernels.svg: the codecs' kernels on one core as shares of memcpy, and on several cores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from plot_style import Rows, read_groups, save, style

_COLOURS = {
    "encode": "#2b6cb0",
    "decode_add": "#c05621",
    "combine_3": "#6b46c1",
    "hop": "#2f855a",
}
_SHARES = ("encode", "decode_add", "combine_3")
_SCALINGS = ("encode", "decode_add", "hop")


def _draw_bars(axes: Axes, rows: Rows, kernels: Sequence[str], column: str) -> None:
    """One group of bars a codec, in the order of the rows, from the top down."""
    codecs = list(dict.fromkeys(row["codec"] for row in rows))
    height = 0.8 / len(kernels)
    for i, kernel in enumerate(kernels):
        values = {row["codec"]: row[column] for row in rows if row["kernel"] == kernel}
        places = [y + (i - (len(kernels) - 1) / 2) * height for y in range(len(codecs))]
        lengths = [values.get(codec, 0.0) for codec in codecs]
        bars = axes.barh(places, lengths, height * 0.92, color=_COLOURS[kernel])
        axes.bar_label(bars, fmt="%.2f", fontsize=6.5, padding=2)
    axes.axvline(1, color="#1a202c", linewidth=0.8)
    axes.set_yticks(range(len(codecs)), codecs)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12, y=0.02)


def draw_kernels(folder: Path, out: Path) -> list[Path]:
    """Returns what was written. NoRowsError if nothing was measured."""
    rows = read_groups(folder, ["kernels"])["kernels"]
    one_core = [row for row in rows if "ratio_to_memcpy" in row]
    cores = [row for row in rows if "scaling_to_memcpy" in row]
    path = out / "kernels.svg"
    codecs = len({row["codec"] for row in one_core})
    with style():
        figure, panels = plt.subplots(
            *(1, 2 if cores else 1),
            figsize=(10 if cores else 6, 1.6 + 0.42 * max(codecs, 4)),
            squeeze=False,
            layout="constrained",
        )
        left = panels[0, 0]
        _draw_bars(left, one_core, _SHARES, "ratio_to_memcpy")
        left.set_xlabel("speed over memcpy's of the same f32 (higher is faster)")
        left.set_title("one core, 256 KiB of f32")
        if cores:
            right = panels[0, 1]
            _draw_bars(right, cores, _SCALINGS, "scaling_to_memcpy")
            rows_shown = max(len({row["codec"] for row in cores}), codecs / 2)
            right.set_ylim(rows_shown - 0.5, -0.5)  # a few codecs make no thick bars
            right.set_xlabel("gain by more cores over memcpy's gain")
            right.set_title(f"{cores[0]['cores']} cores at once over one")
        shown = _COLOURS if cores else _SHARES
        marks = [Patch(color=_COLOURS[name], label=name) for name in shown]
        figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
        isa = one_core[0]["isa"] if one_core else ""
        figure.suptitle(f"Codec kernels against memcpy ({isa}), medians within one run")
        save(figure, path)
    return [path]
