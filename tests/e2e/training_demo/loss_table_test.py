"""The table of what training loses on each wire: its judgement, and a short run of the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "train_demo"))

import loss_table
from loss_table import Row

EXACT = np.array([2.00, 2.02, 2.04])


@pytest.mark.parametrize(
    ("shift", "within"), [(0.0, True), (0.03, True), (-0.03, True), (0.05, False), (-0.05, False)]
)
def test_a_wire_is_judged_by_the_spread_of_the_exact_runs(shift: float, within: bool) -> None:
    row = Row("int8/128", 8.125, EXACT + shift, EXACT)
    assert row.is_within == within
    assert f"| {'yes' if within else 'no'} |" in row.text()
    assert f"{shift:+.4f}" in row.text()


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
