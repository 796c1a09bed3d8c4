"""Running a command while the CPUs share a last-level cache, or while they do not.

A hypervisor moves its machines between the two within minutes, and what was measured half here and
half there means nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tersum.cli.perf_placement import measure_placement

PLACES = ("near", "far")
_BETWEEN_NS = 100.0  # CPUs of one cache are 25 to 60 ns apart, those of two 140 and more
_MOST_TRIES = 4
_MOST_WAIT_S = 300.0
_PAUSE_S = 2.0

_never_come: set[str] = set()  # places that a whole wait has not met: later commands do not wait

_T = TypeVar("_T")


def place_now() -> str:
    """``near`` or ``far``; near too where there is one CPU, or the distance cannot be measured."""
    placement = measure_placement()
    return "far" if placement and placement.farthest[0] > _BETWEEN_NS else "near"


def run_at_place(
    run: Callable[[], _T],
    place: str,
    look: Callable[[], str] = place_now,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[_T, str]:
    """What the first of four runs returned that began and ended with the CPUs at ``place``, else
    the last one, and in words what was not as asked for. An empty ``place``: one run, anyhow."""
    if not place:
        return run(), ""
    for attempt in range(1, _MOST_TRIES + 1):
        if not _wait_for(place, look, sleep):
            return run(), f"the CPUs were not {place}, nor in {_MOST_WAIT_S:.0f} s"
        result = run()
        if look() == place:
            return result, ""
        print(f"# the CPUs are not {place} any more (try {attempt})", flush=True)
    return result, f"the CPUs did not stay {place} in any of {_MOST_TRIES} tries"


def _wait_for(place: str, look: Callable[[], str], sleep: Callable[[float], None]) -> bool:
    for _ in range(0 if place in _never_come else int(_MOST_WAIT_S / _PAUSE_S)):
        if look() == place:
            return True
        sleep(_PAUSE_S)
    if look() == place:
        return True
    _never_come.add(place)
    return False
