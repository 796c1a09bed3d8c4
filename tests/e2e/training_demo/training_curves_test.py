"""The committed loss curves of the whole training check: int8 within the spread of exact runs.

`examples/train_demo/train_check.py --json docs/training-curves.json` measures them, on four
processes; training_spread_test.py runs the check in small, and the judge on curves that must fail.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "train_demo"))

import curve_file
from curve_file import CurveFile

CURVES = Path(__file__).parents[3] / "docs" / "training-curves.json"


@cache
def committed() -> CurveFile:
    return curve_file.from_json(CURVES.read_text())


def test_the_whole_check_was_run() -> None:
    """Four data-parallel ranks, 300 steps, three seeds."""
    settings = committed().settings
    assert (settings["ranks"], settings["processes"], settings["steps"]) == (4, 4, 300)
    assert (settings["plain"], settings["wire"]) == ("exact", "int8/128")
    for losses in (committed().plain, committed().tried):
        assert losses.shape == (3, 300)
        assert np.isfinite(losses).all()


def test_training_got_somewhere() -> None:
    """A band around curves that do not fall would show nothing."""
    for losses in (committed().plain, committed().tried):
        assert (losses[:, -25:].mean(axis=1) < 0.75 * losses[:, :5].mean(axis=1)).all()


def test_int8_lies_within_the_spread_of_exact_runs_along_the_whole_curve() -> None:
    assert committed().settings["window"] <= 25
    verdict = committed().verdict
    assert len(verdict.first_steps) >= 12
    assert verdict.every_run_within, verdict.distance
    assert verdict.mean_within


def test_what_was_found_is_what_the_curves_say() -> None:
    claims = committed().claims
    assert len(claims) == 4 and all(claims.values()), claims


def test_wires_are_two() -> None:
    """Curves of one wire, written twice, would be within anything."""
    assert not np.array_equal(committed().plain, committed().tried)


def test_curves_are_read_as_they_were_written() -> None:
    rng = np.random.default_rng(5)
    plain, tried = rng.standard_normal((2, 3, 50)).round(curve_file.PLACES)
    text = curve_file.as_json(CurveFile({"window": 25, "wire": "int8"}, plain, tried, {"a": True}))
    found = curve_file.from_json(text)
    np.testing.assert_array_equal(found.plain, plain)
    np.testing.assert_array_equal(found.tried, tried)
    assert found.settings == {"window": 25, "wire": "int8"} and found.claims == {"a": True}


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_curves_are_judged_anew(shift: float) -> None:
    plain = np.random.default_rng(6).standard_normal((3, 50))
    file = CurveFile({"window": 25}, plain, plain + shift, {"held": True})
    assert file.verdict.every_run_within == (shift == 0)
