"""The table of what training loses on each wire: its judgement, and a short run of the whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "train_demo"))

import loss_table
from loss_table import CLAIMED, Row, as_json, from_json

DOCS = Path(__file__).parents[3] / "docs"
EXACT = np.array([2.00, 2.02, 2.04])


@pytest.mark.parametrize(
    ("shift", "within"), [(0.0, True), (0.03, True), (-0.03, True), (0.05, False), (-0.05, False)]
)
def test_a_wire_is_judged_by_the_spread_of_the_exact_runs(shift: float, within: bool) -> None:
    row = Row("int8/128", 8.125, EXACT + shift, EXACT)
    assert row.is_within == within
    assert f"| {'yes' if within else 'no'} |" in row.text()
    assert f"{shift:+.4f}" in row.text()


def test_losses_are_read_as_they_were_written() -> None:
    table = [Row("exact", 32, EXACT, EXACT), Row("int2/32", 2.5, EXACT + 0.01, EXACT)]
    text = as_json(table, {"optimizer": "momentum", "steps": 12})
    assert [row.text() for row in from_json(text)] == [row.text() for row in table]
    assert json.loads(text)["steps"] == 12


def test_the_page_has_the_committed_losses_and_they_hold_what_is_claimed() -> None:
    page = (DOCS / "demo.md").read_text()
    table = from_json((DOCS / "training-losses.json").read_text())
    for row in table:
        assert row.text() in page
    held = {row.wire for row in table if row.is_within}
    assert held >= {"exact", *CLAIMED}


def test_the_page_has_the_committed_losses_of_adam() -> None:
    page = (DOCS / "demo.md").read_text()
    for row in from_json((DOCS / "training-losses-adam.json").read_text()):
        assert row.text() in page


def test_the_table_has_every_wire(tmp_path: Path) -> None:
    pytest.importorskip("tersum.jax")
    wires = ("int4/128+hadamard+sr", "int2/32+feedback")
    done = subprocess.run(
        [
            *(sys.executable, loss_table.__file__, "--out", str(tmp_path)),
            *("--steps", "12", "--window", "6", "--seeds", "2", "--wires", ",".join(wires)),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    print(done.stdout, done.stderr)
    for wire in ("exact", *wires):
        assert f"| `{wire}` |" in done.stdout
    # So few steps decide nothing, but what travelled and the bits are those of any run.
    assert "equal bits on all devices" not in done.stdout
    assert done.returncode == (1 if "MISSED" in done.stdout else 0)
