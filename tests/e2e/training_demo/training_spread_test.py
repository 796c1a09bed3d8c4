"""Training through tersum stays within the spread of plain runs; the judge itself can say no."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "train_demo"))

import curve_file
import spread

EXAMPLE = Path(spread.__file__).parent
SEED = 20260101


def plain_runs() -> np.ndarray:
    """Three noisy curves [3, 300] that fall from 4 to 2, as the example's do."""
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    fall = 2 + 2 * np.exp(-np.arange(300) / 60)
    noisy: np.ndarray = fall + 0.1 * rng.standard_normal((3, 300))
    return noisy


def test_plain_runs_lie_within_their_own_spread() -> None:
    runs = plain_runs()
    verdict = spread.judge(runs, runs, 25)
    assert verdict.every_run_within and verdict.mean_within
    assert verdict.distance.max() <= 2 / np.sqrt(3) + 1e-9  # the most one of three can differ


@pytest.mark.parametrize("shift", [-0.2, 0.2])
def test_a_shifted_curve_is_refused(shift: float) -> None:
    runs = plain_runs()
    verdict = spread.judge(runs, runs + shift, 25)
    assert not verdict.every_run_within
    assert not verdict.mean_within


def test_one_bad_window_is_refused() -> None:
    runs = plain_runs()
    tried = runs.copy()
    tried[1, 150:175] += 0.5
    assert not spread.judge(runs, tried, 25).every_run_within


def test_a_curve_shorter_than_a_window_is_an_error() -> None:
    with pytest.raises(ValueError, match="do not fill one window"):
        spread.judge(np.zeros((3, 10)), np.zeros((3, 10)), 25)


def have_tersum_jax() -> bool:
    try:
        return importlib.util.find_spec("tersum.jax") is not None
    except ImportError:
        return False


@pytest.mark.skipif(not have_tersum_jax(), reason="tersum is not installed with its JAX part")
@pytest.mark.parametrize("processes", [1, 2])
def test_int8_trains_within_the_spread(processes: int, tmp_path: Path) -> None:
    # A short form of the check; `train_check.py` alone is the whole one: 4 processes, 300 steps.
    done = subprocess.run(
        [
            *(sys.executable, str(EXAMPLE / "train_check.py"), "--out", str(tmp_path)),
            *("--processes", str(processes), "--steps", "40", "--window", "10"),
            *("--json", str(tmp_path / "curves.json")),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout
    written = curve_file.from_json((tmp_path / "curves.json").read_text())
    assert written.tried.shape == (3, 40) and not np.array_equal(written.tried, written.plain)
    assert written.verdict.every_run_within and written.verdict.mean_within
    assert len(written.claims) == 4 and all(written.claims.values())
