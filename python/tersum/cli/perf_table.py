"""The table of ``tersum perf``: nccl-tests' columns, then tersum's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import tersum
from tersum.cli.byte_sizes import format_bytes
from tersum.cli.perf_binding import binding_text
from tersum.cli.perf_options import LinkRow, PerfOptions, Row, sent_share

_COLUMNS = (
    ("size", 9, "(B)"),
    ("count", 10, "(elements)"),
    ("type", 9, ""),
    ("redop", 5, ""),
    ("library", 10, ""),
    ("codec", 9, ""),
    ("plan", 18, ""),
    ("time", 10, "(us)"),
    ("predicted", 10, "(us)"),
    ("algbw", 7, "(GB/s)"),
    ("busbw", 7, "(GB/s)"),
    ("wire", 10, "(B/rank)"),
    ("compr", 6, "(x)"),
    ("error", 8, "(rel-L2)"),
    ("wrong", 6, ""),
)
_LINK_COLUMNS = (("bound", 10, "(us)"), ("ratio", 6, "(x)"))


def heading(options: PerfOptions, ranks: int, link: str | None) -> str:
    """What is measured, and the names of the columns."""
    where = f"link {link}" if link else f"transport {options.transport}"
    columns = _COLUMNS + (_LINK_COLUMNS if link or options.topology else ())
    if options.topology:
        name = "a topology file" if "{" in options.topology else options.topology
        where = f"{name}, {options.topology_bits_per_s / 1e6:g} Mbit/s where a link names no rate"
    what = "iterations" if options.batch == 1 else f"batches of {options.batch} calls"
    lines = [
        f"# tersum {tersum.__version__} ({tersum.isa()}): {options.op}, {ranks} ranks, {where}, "
        f"{options.iters} {what} after {options.warmup}, seed {options.seed}",
        *([f"# CPUs of each rank: {binding_text(options.cpus)}"] if options.cpus else []),
        "# time: a call's on the slowest rank, median; error: against the sum in float64",
        "# " + " ".join(f"{name:>{width}}" for name, width, _ in columns),
        "# " + " ".join(f"{unit:>{width}}" for _, width, unit in columns),
    ]
    return "\n".join(lines)


def line(row: Row, redop: str) -> str:
    """One row of the table; ``redop`` as asked for, shown where the collective reduces."""
    algbw = row["bytes"] / row["time_us"] / 1e3
    exact = row["bytes"] * sent_share(row["op"], row["ranks"])
    compression = exact / row["wire_bytes"] if row["wire_bytes"] else 1.0
    cells = [
        f"{row['bytes']}",
        f"{row['count']}",
        row["dtype"],
        redop if row["op"] in ("all_reduce", "reduce_scatter") else "none",
        row["library"],
        row["codec"],
        row["plan"],
        f"{row['time_us']:.1f}",
        "-" if row["predicted_us"] is None else f"{row['predicted_us']:.1f}",
        f"{algbw:.3f}",
        f"{row['busbw_gb_s']:.3f}",
        f"{row['wire_bytes']}",
        f"{compression:.3f}",
        f"{row['rel_error']:.2e}",
        f"{row['wrong']}",
    ]
    columns = list(_COLUMNS)
    link_row = cast(LinkRow, row)
    if "wire_bound_us" in link_row:
        cells += [f"{link_row['wire_bound_us']:.1f}", f"{link_row['wire_ratio']:.3f}"]
        columns += _LINK_COLUMNS
    text = "  " + " ".join(f"{cell:>{c[1]}}" for cell, c in zip(cells, columns, strict=True))
    split = link_row.get("split")
    if split:
        text += f"  {split}"
    return text + (f"\n#   {link_row['explanation']}" if "explanation" in link_row else "")


def footer(rows: Sequence[Row], wrong: int) -> str:
    """The verdict, and each contender's speed against the first at the largest size."""
    if not rows:
        return "# nothing was measured"
    largest = [row for row in rows if row["bytes"] == rows[-1]["bytes"]]
    base = largest[0]
    ratios = ", ".join(
        f"{_label(row)} {base['time_us'] / row['time_us']:.2f}x" for row in largest[1:]
    )
    text = f"# wrong elements: {wrong}"
    if ratios:
        text += f"\n# speed at {format_bytes(base['bytes'])} against {_label(base)}: {ratios}"
    return text


def _label(row: Row) -> str:
    if row["library"] == "tersum":
        split = cast(LinkRow, row).get("split")
        return f"{row['codec']} {row['plan']}" + (f" ({split})" if split else "")
    return row["library"] + (f" {row['codec']}" if row["codec"] != "exact" else "")
