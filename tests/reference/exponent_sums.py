"""Signs and exponents that are added at random, from docs/codecs.md ("Sums of exponents") alone.

The scale is found as in integer_sums.py; no code of tersum's.
"""

from __future__ import annotations

import math

from encode_slice import LEAST_NORMAL
from float_rounding import bfloat16, float32, round_to
from format_table import Format
from random_rounding import random_bits

#: Only the largest level matters, to the scale.
UNIT = Format("sum:exp", "table", 1, [-1.0, 1.0], "bytes", "bf16", 1024)
SIGN, TOP = 128, 127
ADDITION_KEY = 0x9E3779B97F4A7C15


def share(bits: int) -> float:
    """A number in [0, 1)."""
    return (bits >> 8) * 2.0**-24


def headroom(ranks: int) -> int:
    """k of the document."""
    return (ranks - 1).bit_length()


def code_of(u: float, k: int, bits: int) -> int:
    """Of a scaled value; ``bits``: its random number."""
    if u == 0:
        return 0
    fraction, exponent = math.frexp(abs(u))
    place = exponent - 1 + TOP  # of the power of two below, as a code without headroom
    if place > k:
        above = int((2 * fraction - 1) * 2**23)
        magnitude = place - k + (above + (bits >> 9) >= 2**23)
    else:
        magnitude = int(share(bits) < abs(u) * 2.0 ** (TOP - 1 - k))
    return magnitude + (SIGN if magnitude and u < 0 else 0)


def codes(ranks: int, row: list[float], scale_bits: int, key: int) -> list[int]:
    """A contribution."""
    scale = bfloat16(scale_bits)
    if not scale > 0:
        return [0] * len(row)
    factor = 2.0**64 if scale < LEAST_NORMAL else 1.0
    inverse = float32(1 / (scale * factor))
    out = []
    for i, x in enumerate(row):
        limited = max(-scale, min(scale, x))
        u = max(-1.0, min(1.0, float32(limited * factor * inverse)))
        out.append(code_of(u, headroom(ranks), random_bits(key, i)))
    return out


def add_codes(a: int, b: int, bits: int) -> int:
    """Of two codes; ``bits``: the random number of this addition."""
    lead, other = (a, b) if a % SIGN >= b % SIGN else (b, a)
    same = a // SIGN == b // SIGN
    apart = lead % SIGN - other % SIGN
    if other % SIGN == 0:
        return lead if lead % SIGN else 0
    if not same and apart == 0:
        return 0
    halvings = apart if same else apart - 1
    moves = bits << halvings < 2**32
    if same:
        return lead // SIGN * SIGN + min(lead % SIGN + moves, TOP)
    return lead - moves


def add(rows: list[list[int]], key: int) -> list[int]:
    """As the rank with that key does it."""
    waiting: list[list[int]] = []
    additions = 0

    def join_last() -> None:
        nonlocal additions
        additions += 1
        own = (key + additions * ADDITION_KEY) % 2**64
        second, first = waiting.pop(), waiting.pop()
        pairs = enumerate(zip(first, second, strict=True))
        waiting.append([add_codes(a, b, random_bits(own, i)) for i, (a, b) in pairs])

    for number, row in enumerate(rows, 1):
        waiting.append(row)
        while number % 2 == 0:
            number //= 2
            join_last()
    while len(waiting) > 1:
        join_last()
    return waiting[0]


def values_of(
    dtype: str, ranks: int, numbers: list[int], scale_bits: int, divisor: int
) -> list[float]:
    """What sums stand for."""
    scale = bfloat16(scale_bits)
    out = []
    for code in numbers:
        place = code % SIGN
        level = 2.0 ** (place - TOP + headroom(ranks)) if place else 0.0
        signed = -level if code >= SIGN else level
        out.append(round_to(dtype, float32(float32(signed * scale) / divisor)))
    return out
