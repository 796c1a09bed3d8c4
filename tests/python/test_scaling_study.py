"""docs/scaling-study.md says what the cost model says: some of its rows, reckoned again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tersum.cli.plan_command import format_seconds
from tersum.cli.plan_study import study_plans

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scaling-study.md"
SIZES = {"64 KiB": 64 << 10, "4 MiB": 4 << 20, "64 MiB": 64 << 20}
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(text: str) -> float:
    """What format_seconds wrote."""
    value, unit = text.split()
    return float(value) * UNITS[unit]


def row_of(topology: str, size: str) -> list[str]:
    """The cells of a row: topology, array, plan, time, times the bound, what decides, …"""
    start = f"| {topology} | {size} |"
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(start)
    ]
    assert len(rows) == 1, start
    return [cell.strip().strip("`") for cell in rows[0].strip("|").split("|")]


@pytest.mark.parametrize(
    ("topology", "size"),
    [
        ("ring16", "64 KiB"),
        ("torus4x4", "4 MiB"),
        ("star16", "4 MiB"),
        ("star16", "64 MiB"),
        ("torus8x8x8", "64 MiB"),
    ],
)
def test_rows_follow_from_the_model(topology: str, size: str) -> None:
    study = study_plans(topology, size=SIZES[size], codec="int8", rate="1gbit", latency_us=20.0)
    best = study.fitting[0]
    cells = row_of(topology, size)
    assert cells[2] == best.plan
    assert seconds(cells[3]) == pytest.approx(best.time_s, rel=0.01)
    assert float(cells[4]) == pytest.approx(best.time_s / study.bound_s, rel=0.01)
    assert cells[5] == best.dominant


def test_times_are_read_as_they_are_written() -> None:
    for time_s in (3.51e-4, 4.206e-3, 1.5):
        assert seconds(format_seconds(time_s)) == pytest.approx(time_s, rel=0.001)
