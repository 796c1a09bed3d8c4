"""How far the CPUs of this machine are from each other while ``tersum perf`` measures.

A hypervisor moves its machines between cores that share a cache and cores that do not, within
minutes, and what passes through shared memory or loopback is up to three times slower on the
latter. So the distance is measured before the rows and after them, and both stand beside them.
"""

from __future__ import annotations

import itertools
import os
from typing import NamedTuple

from tersum import _core

_MOST_CPUS = 8  # 28 pairs of some milliseconds each


class Placement(NamedTuple):
    """The closest and the most distant pair of CPUs, such as ``(25.3, "0-1")``: ns one way for a
    cache line."""

    nearest: tuple[float, str]
    farthest: tuple[float, str]


def measure_placement() -> Placement | None:
    """Of eight of the CPUs of this process at most; None where no pair could be measured. Takes
    milliseconds for each pair, on two threads that spin."""
    cpus = sorted(os.sched_getaffinity(0))[:_MOST_CPUS]
    pairs = list(itertools.combinations(cpus, 2))
    distances = [_core.core_distance_ns(*pair) for pair in pairs]
    known = [(ns, f"{a}-{b}") for ns, (a, b) in zip(distances, pairs, strict=True) if ns >= 0]
    return Placement(min(known), max(known)) if known else None


def placement_line(placement: Placement | None) -> str:
    """A comment of the table."""
    if placement is None:
        return "# placement: a single CPU, or none that could be measured"
    nearest, farthest = placement
    text = f"CPUs {nearest[1]} {nearest[0]:.0f} ns one way for a cache line"
    if farthest[1] != nearest[1]:
        text += f", CPUs {farthest[1]} {farthest[0]:.0f} ns"
    return f"# placement: {text} (25 to 60: they share a last-level cache; 150 to 250: they do not)"


def farthest_ns(placement: Placement | None) -> float | None:
    """What a row keeps of it."""
    return round(placement.farthest[0], 1) if placement else None
