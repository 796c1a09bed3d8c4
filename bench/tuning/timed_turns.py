"""Timing calls that take turns within one run, by all ranks alike."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tersum

CALLS_PER_TURN = 4
_TURNS_MIN = 3
_TURNS_MAX = 400

# The group in which a contender calls, and its call.
Contender = tuple[tersum.Communicator, Callable[[], object]]


def largest(group: tersum.Communicator, values: Any) -> Any:
    """Element by element, over all ranks."""
    return group.all_reduce(values, op="max", codec="exact")


def median_us(
    group: tersum.Communicator, call: Callable[[], object], calls: int, untimed: int
) -> float:
    """Microseconds on the slowest rank, the median of ``calls`` calls behind ``untimed`` others."""
    own = []
    for _ in range(untimed + calls):
        begun = time.perf_counter()
        call()
        own.append(time.perf_counter() - begun)
    return statistics.median(largest(group, np.asarray(own[untimed:])).tolist()) * 1e6


def times_in_turns(contenders: Sequence[Contender], seconds: float) -> list[list[float]]:
    """This rank's times of each contender's calls, in seconds, of turns for about ``seconds``.

    A turn begins at a barrier; its first call brings the contender's memory back and is not timed.
    """
    times: list[list[float]] = [[] for _ in contenders]

    def turn(keep: bool) -> None:
        for (group, call), kept in zip(contenders, times, strict=True):
            group.barrier()
            marks = []
            for _ in range(CALLS_PER_TURN + 1):
                call()
                marks.append(time.perf_counter())
            if keep:
                kept += [after - before for before, after in itertools.pairwise(marks)]

    turn(keep=False)
    begun = time.perf_counter()
    turn(keep=False)
    took = largest(contenders[0][0], np.asarray([time.perf_counter() - begun]))[0]
    for _ in range(max(_TURNS_MIN, min(_TURNS_MAX, int(seconds / took)))):
        turn(keep=True)
    return times
