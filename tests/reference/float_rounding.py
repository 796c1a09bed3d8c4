"""Roundings, one at a time: float32 arithmetic and the 16-bit types. Standard library only."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

VALUE_TYPES = ("float32", "bfloat16", "float16")
#: The largest float32 that is still a finite number of the type (L in docs/codecs.md), as bits.
LARGEST_BITS = {"float32": 0x7F7FFFFF, "bfloat16": 0x7F7F7FFF, "float16": 0x477FEFFF}


def float_of(bits: int) -> float:
    """The number that 32 bits of float32 stand for."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def bits_of(value: float) -> int:
    """The bits of a number that is a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def bfloat16(bits: int) -> float:
    """The number that 16 bits of bfloat16 stand for: the upper half of a float32."""
    return float_of(bits << 16)


def float32(value: float) -> float:
    """The nearest float32, ties to even.

    ``value`` may be a sum, product or quotient of two float32 in Python's binary64: that is wide
    enough for the second rounding to give what one rounding would.
    """
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def round_to(dtype: str, value: float) -> float:
    """``value`` rounded to nearest even in a value type of 16 bits."""
    if dtype == "float32" or not math.isfinite(value):
        return value
    bits, least, largest = (8, -133, 2.0**128) if dtype == "bfloat16" else (11, -24, 2.0**16)
    if value == 0:
        return value
    exponent = max(math.frexp(value)[1] - bits, least)
    rounded = float(round(Fraction(value) / Fraction(2) ** exponent) * Fraction(2) ** exponent)
    return math.copysign(math.inf if abs(rounded) >= largest else abs(rounded), value)


def limit(largest: float, value: float) -> float:
    """Magnitudes above ``largest`` become it; NaN stays."""
    return math.copysign(largest, value) if abs(value) > largest else value
