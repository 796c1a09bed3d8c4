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


def share(bits: int) -> float:
    """A number in [0, 1)."""
    return (bits >> 8) * 2.0**-24


def step(value: float, bits: int) -> int:
    """One of the two integers around ``value``."""
    below = math.floor(value)
    return below + (share(bits) < float32(value - below))


def minifloat_code(format: Format, u: float, bits: int) -> int:
    """The magnitude below or the one above, and the sign of ``u``."""
    half = 1 << (format.bits - 1)
    magnitude = min(abs(u), format.largest)
    top = format.levels.index(format.largest)
    code = bisect.bisect_right(format.levels, magnitude, 0, top + 1) - 1
    # Even steps reach through the denormal numbers and the first binade.
    steps = sum(level == i * format.levels[1] for i, level in enumerate(format.levels[: top + 1]))
    least_normal = steps // 2
    if code < least_normal:
        code = step(magnitude / format.levels[1], bits)
    elif code < top:
        low, high = (Fraction(level) for level in format.levels[code : code + 2])
        kept = 24 - least_normal.bit_length()
        number = Fraction(bits >> (32 - kept), 1 << kept)
        code += (Fraction(magnitude) - low) / (high - low) + number >= 1
    return code + (half if math.copysign(1, u) < 0 else 0)


def random_code(format: Format, u: float, bits: int) -> int:
    """Of a scaled value."""
    if format.kind == "minifloat":
        return minifloat_code(format, u, bits)
    if format.kind == "integer":
        top = int(format.largest)
        near = max(-format.largest, min(format.largest, u))
        return max(-top, min(top, step(near, bits))) % (1 << format.bits)
    below = bisect.bisect_right(format.levels, u, 1, len(format.levels) - 1) - 1
    gap = float32(format.levels[below + 1] - format.levels[below])
    return below + (float32(share(bits) * gap) < float32(u - format.levels[below]))
