"""Codes of two bits that are added two by two, from docs/codecs.md ("Sums of pairs") alone.

Scales and codes are those of integer_sums.py with other levels; no code of tersum's.
"""

from __future__ import annotations

from code_packing import ceil_div
from float_rounding import bfloat16, float32, round_to
from format_table import FORMATS, Spec

CODES_PER_BYTE = 4
HALVES = FORMATS["lut2"]


def mean(a: int, b: int) -> int:
    """Of two codes; of the two in the middle the one on the side of ``a``."""
    return (a + b + 1) // 2 if a > b else (a + b) // 2


def add(rows: list[list[int]]) -> list[int]:
    """The code of all contributions: 2, 4, 8, … of them, in the order of the ranks."""
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [[mean(a, b) for a, b in zip(first, second, strict=True)] for first, second in pairs]
    return rows[0]


def pack(codes: list[int]) -> bytes:
    """The first code of a byte lies lowest."""
    parts = (codes[at : at + CODES_PER_BYTE] for at in range(0, len(codes), CODES_PER_BYTE))
    return bytes(sum(code << 2 * place for place, code in enumerate(part)) for part in parts)


def unpack(payload: bytes, count: int) -> list[int]:
    """What pack wrote."""
    expected = ceil_div(count, CODES_PER_BYTE)
    if len(payload) != expected:
        raise ValueError(f"{len(payload)} bytes instead of {expected}")
    return [payload[i // CODES_PER_BYTE] >> 2 * (i % CODES_PER_BYTE) & 3 for i in range(count)]


def values_of(
    spec: Spec, dtype: str, codes: list[int], scales: list[int], factor: float
) -> list[float]:
    """``factor``: the number of ranks in a sum, 1 in an average."""
    out = []
    for i, code in enumerate(codes):
        mean_value = HALVES.levels[code] * bfloat16(scales[i // spec.block])
        out.append(round_to(dtype, float32(mean_value * factor)))
    return out
