"""A capture of several processes in one directory, and what tune-codec makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from jax_launch import run_jax, skip_without_jax

from tersum._captured_calls import read_capture
from tersum._codec_quality import StatelessSum
from tersum.cli import main

skip_without_jax()

PROCESSES, DEVICES = 2, 2


def test_processes_share_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = run_jax(
        "capture_sums.py", count=PROCESSES, devices=DEVICES, arguments=[str(tmp_path)]
    )
    assert all(output.splitlines()[-1].startswith(f"{3 * DEVICES} calls in") for output in outputs)
    indexes = sorted(tmp_path.glob("*/index.json"))
    assert len(indexes) == PROCESSES
    (site,) = read_capture(tmp_path)
    assert (site.ranks, site.count) == (PROCESSES * DEVICES, 96 * 64)
    assert site.channels in (64, 96)  # XLA may lay the product out either way
    # All ranks of all three calls, and the sum that the program got is the one simulated from them.
    assert [len(call.files) for call in site.calls] == [PROCESSES * DEVICES] * 3
    sums = [
        np.load(index.parent / entry["sum"]).reshape(-1)
        for index in indexes
        for entry in json.loads(index.read_text())["calls"]
        if entry["sum"]
    ]
    simulated = [StatelessSum("int6/32").next(inputs).total for inputs in site.inputs(4)]
    assert [total.tobytes() for total in sums] == [total.tobytes() for total in simulated]

    wanted = ["--codec", "int8/32,int6/32,int4/32", "--max-rel-error", "0.05"]
    assert main(["tune-codec", "--capture", str(tmp_path), *wanted]) == 0
    assert capsys.readouterr().out.endswith("int6/32\n")
