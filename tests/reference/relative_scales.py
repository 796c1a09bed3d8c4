"""Scales of a byte each, relative to one that 1,024 values share: docs/codecs.md, "The modifier
+adaptive". No code of tersum's. Scales are bfloat16 patterns here.
"""

from __future__ import annotations

import itertools
import math

from format_table import Format

OCTAVE = 128
STEP = 8
STEP_MOST = 253
ZERO = 254
NAN = 255
INFINITE = 0x7F80
NAN_PATTERN = 0x7FC0


def goes_down(format: Format) -> int:
    """By how many patterns a scale may become smaller."""
    levels = sorted(level for level in format.levels if math.isfinite(level))
    gap = max(b - a for a, b in itertools.pairwise(levels))
    return STEP // 2 if 16 * gap >= format.largest else 0


def shared_exponent(patterns: list[int]) -> int:
    """The byte of a group, from the patterns of its blocks."""
    return -(-max((p for p in patterns if p != NAN_PATTERN), default=0) // OCTAVE)


def choose_step(format: Format, most: int, exponent: int, pattern: int) -> int:
    """The byte of a block; ``most``: the largest pattern that there may be."""
    if pattern == NAN_PATTERN:
        return NAN
    if pattern == 0:
        return ZERO
    top = OCTAVE * exponent
    step = min((top - pattern + goes_down(format)) // STEP, STEP_MOST, top // STEP - 1)
    return step + 1 if top - STEP * step > most else step


def pattern_of(exponent: int, step: int) -> int:
    """That of infinity for bytes that stand for no scale."""
    if step == ZERO:
        return 0
    if step == NAN:
        return NAN_PATTERN
    pattern = OCTAVE * exponent - STEP * step
    return pattern if 0 < pattern < INFINITE else INFINITE
