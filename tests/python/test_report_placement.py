"""bench/report/report_placement.py: what was measured while the CPUs moved is measured again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "report"))

import pytest
import report_placement
from report_placement import PLACES, place_now, run_at_place


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_placement, "_never_come", set())


def looking(*places: str) -> Callable[[], str]:
    """The places seen one after the other, the last of them for ever."""
    left = list(places)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def run_with(place: str, seen: Iterable[str]) -> tuple[int, str, int]:
    """The result, which is the number of runs so far; what was not as asked for; the pauses."""
    runs: list[None] = []
    pauses: list[float] = []

    def run() -> int:
        runs.append(None)
        return len(runs)

    result, complaint = run_at_place(run, place, looking(*seen), pauses.append)
    assert result == len(runs)
    return result, complaint, len(pauses)


def test_without_a_place_it_runs_once_and_does_not_look() -> None:
    assert run_with("", []) == (1, "", 0)


def test_it_waits_for_the_place_and_runs_once_if_it_stays() -> None:
    assert run_with("near", ["far", "far", "near", "near"]) == (1, "", 2)
    assert run_with("far", ["far", "far"]) == (1, "", 0)


def test_a_run_in_which_the_place_changed_is_repeated() -> None:
    assert run_with("near", ["near", "far", "far", "near", "near"]) == (2, "", 1)


def test_a_place_that_never_stays_is_told() -> None:
    result, complaint, _ = run_with("near", ["near", "far"] * 4)
    assert result == 4 and "did not stay near in any of 4 tries" in complaint


def test_a_place_that_never_comes_is_told_after_one_run() -> None:
    result, complaint, pauses = run_with("near", ["far"])
    assert result == 1 and "not near, nor in 300 s" in complaint and pauses == 150
    assert run_with("near", ["far"])[2] == 0, "later ones do not wait again"


def test_this_machine_is_at_one_of_the_places() -> None:
    assert place_now() in PLACES
