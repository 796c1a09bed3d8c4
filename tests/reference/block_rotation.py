"""The transform of +hadamard, in float32: docs/codecs.md, "The modifier +hadamard"; and with the
factors of "The modifier +flatten"."""

from __future__ import annotations

import math
from fractions import Fraction

from channel_factors import Factors
from float_rounding import LARGEST_BITS, float32, float_of, limit

WORD = 0xFFFFFFFF
FLOAT32_MAX = float_of(LARGEST_BITS["float32"])
DAMP = 2.0**-12


def signs(block: int) -> list[float]:
    """Of each place in a block."""
    found = []
    for i in range(block):
        h = i + 1
        h = (h ^ h >> 16) * 0x85EBCA6B & WORD
        h = (h ^ h >> 13) * 0xC2B2AE35 & WORD
        h = h ^ h >> 16
        found.append(-1.0 if h & 1 else 1.0)
    return found


def hadamard(values: list[float]) -> list[float]:
    """H times a block."""
    x = list(values)
    step = 1
    while step < len(x):
        for i in range(len(x)):
            if i & step == 0:
                a, b = x[i], x[i + step]
                x[i], x[i + step] = float32(a + b), float32(a - b)
        step *= 2
    return x


def there(block: list[float]) -> list[float]:
    """The block as it is coded."""
    size = len(block)
    return hadamard([float32(x * s / size) for x, s in zip(block, signs(size), strict=True)])


def is_damped(block: list[float], most: float = 1.0) -> bool:
    """Do its sums need room on the way back? ``most``: what +flatten multiplies by at most."""
    top = max(abs(y) for y in block)
    finite = all(math.isfinite(y) for y in block)
    return finite and Fraction(top) * Fraction(most) * len(block) > Fraction(FLOAT32_MAX) / 2


def turn_back(block: list[float], factors: Factors | None, first: int) -> list[float]:
    """The way back without its last multiplication and without the limit."""
    damp = DAMP if is_damped(block, factors.most if factors else 1.0) else 1.0
    turned = hadamard([float32(y * damp) for y in block])
    signed = [float32(x * s) for x, s in zip(turned, signs(len(block)), strict=True)]
    return factors.back(signed, first) if factors else signed


def back(block: list[float], factors: Factors | None = None, first: int = 0) -> list[float]:
    """The block as it was, not yet limited; with the factors of +flatten, its first value at this
    index of the array."""
    undamp = 1 / DAMP if is_damped(block, factors.most if factors else 1.0) else 1.0
    return [float32(x * undamp) for x in turn_back(block, factors, first)]


def overflows(
    block: list[float], dtype: str, factors: Factors | None = None, first: int = 0
) -> bool:
    """Does a finite block turn back into one that has no finite value?"""
    most = factors.most if factors else 1.0
    largest = Fraction(float_of(LARGEST_BITS[dtype]))
    if not all(math.isfinite(y) for y in block):
        return False
    if max(Fraction(abs(y)) for y in block) * Fraction(most) * len(block) <= largest:
        return False
    undamp = 2**12 if is_damped(block, most) else 1
    turned = turn_back(block, factors, first)
    if not all(math.isfinite(x) for x in turned):
        return True
    return max(Fraction(abs(x)) for x in turned) * undamp > largest * (1 + Fraction(1, 2**18))


def limited(values: list[float], dtype: str) -> list[float]:
    """What coding errors took beyond the type comes back."""
    return [limit(float_of(LARGEST_BITS[dtype]), x) for x in values]
