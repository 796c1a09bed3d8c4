"""Sums whose ranks share scales, of either kind: what golden sums are made and checked with."""

from __future__ import annotations

import integer_sums
import paired_sums
from format_table import Spec


def is_paired(spec: Spec) -> bool:
    """Added by a table; else as integers."""
    return spec.base == "lut2"


def pack_contribution(spec: Spec, codes: list[int]) -> bytes:
    """What a rank sends."""
    return paired_sums.pack(codes) if is_paired(spec) else integer_sums.pack(codes, 8)


def add(spec: Spec, rows: list[list[int]]) -> list[int]:
    """Of the contributions of all ranks, in their order."""
    if is_paired(spec):
        return paired_sums.add(rows)
    return [sum(column) for column in zip(*rows, strict=True)]


def pack_sum(spec: Spec, ranks: int, sums: list[int]) -> bytes:
    """What everybody receives."""
    if is_paired(spec):
        return paired_sums.pack(sums)
    return integer_sums.pack(sums, integer_sums.width(spec, ranks))


def unpack_sum(spec: Spec, ranks: int, payload: bytes, count: int) -> list[int]:
    """What pack_sum wrote; ValueError for another number of bytes."""
    if is_paired(spec):
        return paired_sums.unpack(payload, count)
    return integer_sums.unpack(payload, count, integer_sums.width(spec, ranks))


def values_of(
    spec: Spec, dtype: str, ranks: int, sums: list[int], scales: list[int], divisor: int
) -> list[float]:
    """What sums stand for; ``divisor``: 1, or the number of ranks in an average."""
    if is_paired(spec):
        return paired_sums.values_of(spec, dtype, sums, scales, ranks / divisor)
    return integer_sums.values_of(spec, dtype, sums, scales, divisor)
