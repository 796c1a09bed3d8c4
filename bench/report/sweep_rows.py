"""Rows of the sweeps: what was measured, predicted and chosen per topology, codec and size."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from plot_style import Row, Rows, read_groups, size_label, sizes_of
from report_wires import CODECS, SWEEP, SWEEPS, sweep_name

WITHIN = 0.10  # how far off a prediction may be


class Choice(NamedTuple):
    """One codec at one size: what auto took, and the best plan that was named."""

    codec: str
    size: int
    best_plan: str
    best_us: float
    auto_plan: str
    auto_us: float


def read_sweeps(folder: Path) -> dict[str, Rows]:
    """Rows by topology. NoRowsError if no sweep was measured."""
    groups = read_groups(folder, [sweep_name(sweep) for sweep in SWEEPS])
    return {name.removeprefix(SWEEP).replace("-", " "): rows for name, rows in groups.items()}


def plan_taken(row: Row) -> str:
    """The plan that a row's calls took: that of the explanation where it was left open."""
    if row["plan"] != "auto":
        return str(row["plan"])
    words = str(row.get("explanation", "")).split(":")[0].split(",")[0].split()
    return words[-1] if len(words) > 1 else "unknown"


def off_by(row: Row) -> float | None:
    """The prediction over the time, less one; None where nothing was predicted, and of what auto
    took, whose plan has a row of its own."""
    predicted = row["predicted_us"] if row["plan"] != "auto" else None
    return float(predicted / row["time_us"] - 1) if predicted else None


def choices(rows: Rows) -> list[Choice]:
    """In the order of codecs and sizes, those for which auto and a plan were measured."""
    found = []
    for codec in CODECS:
        for size in sizes_of(rows):
            here = [row for row in rows if (row["codec"], row["bytes"]) == (codec, size)]
            fixed = [row for row in here if row["plan"] != "auto"]
            auto = [row for row in here if row["plan"] == "auto"]
            if not fixed or not auto:
                continue
            best = min(fixed, key=lambda row: float(row["time_us"]))
            times = (best["time_us"], plan_taken(auto[0]), auto[0]["time_us"])
            found.append(Choice(codec, size, best["plan"], *times))
    return found


def choice_table(sweeps: dict[str, Rows]) -> list[str]:
    """Markdown: per topology, codec and size the best plan, and what auto took."""
    lines = [
        "| wires | codec | f32 | best plan | its time | auto took | auto's time | over the best |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for topology, rows in sweeps.items():
        lines += [
            f"| {topology} | {choice.codec} | {size_label(choice.size)} | {choice.best_plan} "
            f"| {choice.best_us / 1e3:,.2f} ms | {choice.auto_plan} "
            f"| {choice.auto_us / 1e3:,.2f} ms | {choice.auto_us / choice.best_us:.2f} |"
            for choice in choices(rows)
        ]
    return lines


def prediction_table(sweeps: dict[str, Rows]) -> list[str]:
    """Markdown: per topology and codec how many predictions are within 10 %, and the worst."""
    lines = [
        f"| wires | codec | within {WITHIN:.0%} | worst, predicted over measured | where |",
        "|---|---|---|---|---|",
    ]
    for topology, rows in sweeps.items():
        for codec in CODECS:
            errors = [
                (abs(error), error, row)
                for row in rows
                if row["codec"] == codec and (error := off_by(row)) is not None
            ]
            if not errors:
                continue
            _, error, worst = max(errors, key=lambda entry: entry[0])
            good = sum(size <= WITHIN for size, _, _ in errors)
            lines.append(
                f"| {topology} | {codec} | {good} of {len(errors)} | {1 + error:.2f} "
                f"| {worst['plan']}, {size_label(worst['bytes'])} |"
            )
    return lines
