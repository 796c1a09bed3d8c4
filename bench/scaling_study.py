"""Writes docs/scaling-study.md and its plots: what the cost model says of 16, 512 and 1,024 ranks.

    PYTHONPATH=<build>/python python bench/scaling_study.py

Predictions only; nothing is measured, so that anybody gets the same files.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tersum.cli.byte_sizes import format_bytes
from tersum.cli.plan_command import format_seconds
from tersum.cli.plan_study import Study, study_plans

RATE, LATENCY_US = "1gbit", 20.0
SCALES = {
    "16 ranks": ("ring16", "torus4x4", "mesh16", "star16"),
    "512 ranks": ("ring512", "torus8x8x8", "mesh512", "star512"),
    "1,024 ranks": ("ring1024", "torus32x32", "mesh1024", "star1024"),
}
CODECS = ("exact", "bf16", "int8", "int4")
SIZES = (64 << 10, 4 << 20, 64 << 20)
COLORS = {"ring": "#4477aa", "torus": "#ee6677", "mesh": "#228833", "star": "#aa7700"}

Studies = dict[tuple[str, str, int], Study]


def predict(topologies: Sequence[str]) -> Studies:
    """Every topology, codec and size."""
    return {
        (topology, codec, size): study_plans(
            topology, size=size, codec=codec, rate=RATE, latency_us=LATENCY_US
        )
        for topology in topologies
        for codec in CODECS
        for size in SIZES
    }


def table(topologies: Sequence[str], studies: Studies) -> list[str]:
    """The quickest plan for int8, its time, and what the other codecs take."""
    lines = [
        "| topology | array | quickest plan | time | x bound | decides | over bf16 | over exact "
        "| int4 over bf16 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for topology in topologies:
        for size in SIZES:
            study = studies[topology, "int8", size]
            best = study.fitting[0]
            times = {c: studies[topology, c, size].fitting[0].time_s for c in CODECS}
            lines.append(
                f"| {topology} | {format_bytes(size)} | `{best.plan}` "
                f"| {format_seconds(best.time_s)} | {best.time_s / study.bound_s:.2f} "
                f"| {best.dominant} | {times['bf16'] / best.time_s:.2f}x "
                f"| {times['exact'] / best.time_s:.2f}x "
                f"| {times['bf16'] / times['int4']:.2f}x |"
            )
    return lines


def plot(studies: Studies, path: Path) -> None:
    """Time over size, one panel per scale; int8 solid, bf16 dashed."""
    import matplotlib

    matplotlib.use("svg")
    # The same bytes on every run.
    matplotlib.rcParams["svg.hashsalt"] = "tersum"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(SCALES), figsize=(12, 4.2), sharey=True)
    for panel, (scale, topologies) in zip(panels, SCALES.items(), strict=True):
        for topology in topologies:
            color = next(color for name, color in COLORS.items() if topology.startswith(name))
            for codec, style in (("int8", "-"), ("bf16", "--")):
                times = [studies[topology, codec, s].fitting[0].time_s * 1e3 for s in SIZES]
                label = topology if codec == "int8" else None
                panel.plot(SIZES, times, style, color=color, label=label, marker="o", markersize=3)
        _decorate(panel, scale)
    panels[0].set_ylabel("predicted time of an all_reduce (ms)")
    figure.suptitle(f"Quickest plan on links of {RATE}: int8 solid, bf16 dashed")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _decorate(panel: Any, scale: str) -> None:
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(SIZES, [format_bytes(size).replace("iB", "") for size in SIZES])
    panel.set_title(scale)
    panel.set_xlabel("array on each rank (bytes)")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)


def page(studies: Studies, findings: str) -> str:
    """The whole document."""
    intro = f"""# Scaling study

What the [cost model](plans.md#the-cost-model) predicts for an `all_reduce` of float32 on 16, 512
and 1,024 ranks. Nothing here was measured: these are predictions for links of {RATE} with
{LATENCY_US:g} µs, one rank and one core per host, and the codec and TCP costs of the machine of
[performance.md](performance.md). `PYTHONPATH=<build>/python python bench/scaling_study.py` writes
this page and its plot anew; one line of it is `tersum plan --topology torus8x8x8 --bytes 64M
--codec int8 --rate {RATE} --latency-us {LATENCY_US:g}`. The table is for int8.

![Predicted times](scaling-study.svg)
"""
    lines = [intro, findings.strip(), ""]
    for scale, topologies in SCALES.items():
        lines += [f"## {scale}", "", *table(topologies, studies), ""]
    return "\n".join(lines)


FINDINGS = """
What the tables say:

* At 64 MiB the wire decides nearly everywhere, the quickest plan is within 2 % of the bound of its
  links, and int8 takes 1.95x to 1.97x less than bf16.
* The exception are meshes of hundreds of ranks: one core per host cannot feed so many links, and
  the transport's core time is far above the bound.
* At 64 KiB on many ranks latency and messages decide, and a codec gains little or nothing.
* On a star the flows of two_step share each port, which the model takes to cost 1.2 % from seven
  flows on; where an array is large enough to hide a ring's hops, `ring`, with one flow a port,
  leads by that.
* On large rings `hierarchical`, which with one rank per host is one shortest-path tree per owner,
  is predicted as quick as `bidirectional_ring`, with fewer chunks and so fewer messages.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    docs = Path(__file__).resolve().parent.parent / "docs"
    parser.add_argument("--out", type=Path, default=docs, help="folder to write to")
    arguments = parser.parse_args()
    studies: Studies = {}
    for topologies in SCALES.values():
        studies |= predict(topologies)
    plot(studies, arguments.out / "scaling-study.svg")
    text = page(studies, FINDINGS)
    (arguments.out / "scaling-study.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
