"""Rounding at random, written from docs/codecs.md ("The modifier +sr") alone."""

from __future__ import annotations

import bisect
import math
from fractions import Fraction

from float_rounding import float32
from format_table import Format

MASK = 0xFFFFFFFF


def random_bits(key: int, index: int) -> int:
    """32 bits for the value with that index in its array."""
    low, high = key & MASK, key >> 32
    h = ((index & MASK) * 0x9E3779B9 + low) & MASK
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = ((h ^ h >> 13) + high & MASK) * 0xC2B2AE35 & MASK
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    return h ^ h >> 15


def random_half(key: int, index: int) -> int:
    """The 16 bits of them that round the value with that index."""
    both = random_bits(key, index // 2)
    return both >> 16 if index % 2 else both & 0xFFFF


def step(value: float, half: int) -> int:
    """One of the two integers around ``value``."""
    return round(Fraction(value) * 2**16) + half >> 16


def minifloat_code(format: Format, u: float, half: int) -> int:
    """The magnitude below or the one above, and the sign of ``u``."""
    sign = 1 << (format.bits - 1)
    magnitude = min(abs(u), format.largest)
    top = format.levels.index(format.largest)
    code = bisect.bisect_right(format.levels, magnitude, 0, top + 1) - 1
    # Even steps reach through the denormal numbers and the first binade.
    steps = sum(level == i * format.levels[1] for i, level in enumerate(format.levels[: top + 1]))
    least_normal = steps // 2
    if code < least_normal:
        code = step(magnitude / format.levels[1], half)
    elif code < top:
        low, high = (Fraction(level) for level in format.levels[code : code + 2])
        number = Fraction(2 * half + 1, 1 << 17)
        code += (Fraction(magnitude) - low) / (high - low) + number >= 1
    return code + (sign if math.copysign(1, u) < 0 else 0)


def random_code(format: Format, u: float, half: int) -> int:
    """Of a scaled value."""
    if format.kind == "minifloat":
        return minifloat_code(format, u, half)
    if format.kind == "integer":
        top = int(format.largest)
        near = max(-format.largest, min(format.largest, u))
        return max(-top, min(top, step(near, half))) % (1 << format.bits)
    below = bisect.bisect_right(format.levels, u, 1, len(format.levels) - 1) - 1
    gap = float32(format.levels[below + 1] - format.levels[below])
    share = (2 * half + 1) / 2**17
    return below + (float32(share * gap) < float32(u - format.levels[below]))
