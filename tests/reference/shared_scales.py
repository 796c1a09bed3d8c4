"""Sums whose ranks share scales, of any kind: what golden sums are made and checked with."""

from __future__ import annotations

import exponent_sums
import integer_sums
import paired_sums
from format_table import Spec


def is_paired(spec: Spec) -> bool:
    """Added by a table of codes."""
    return spec.base == paired_sums.HALVES.name


def is_power(spec: Spec) -> bool:
    """Added at random, as powers of two; what is neither is added as integers."""
    return spec.base == exponent_sums.UNIT.name


def codes(spec: Spec, ranks: int, row: list[float], scales: list[int], key: int) -> list[int]:
    """A contribution."""
    if is_power(spec):
        return exponent_sums.codes(ranks, row, scales[0], key)
    return integer_sums.codes(spec, ranks, row, scales, key)


def pack_contribution(spec: Spec, codes: list[int]) -> bytes:
    """What a rank sends."""
    if is_power(spec):
        return bytes(codes)
    return paired_sums.pack(codes) if is_paired(spec) else integer_sums.pack(codes, 8)


def add(spec: Spec, rows: list[list[int]], key: int) -> list[int]:
    """Of the contributions of all ranks, in their order; ``key``: of rank 0, which adds."""
    if is_power(spec):
        return exponent_sums.add(rows, key)
    if is_paired(spec):
        return paired_sums.add(rows)
    return [sum(column) for column in zip(*rows, strict=True)]


def pack_sum(spec: Spec, ranks: int, sums: list[int]) -> bytes:
    """What everybody receives."""
    if is_power(spec) or is_paired(spec):
        return pack_contribution(spec, sums)
    return integer_sums.pack(sums, integer_sums.width(spec, ranks))


def unpack_sum(spec: Spec, ranks: int, payload: bytes, count: int) -> list[int]:
    """What pack_sum wrote; ValueError for another number of bytes."""
    if is_power(spec):
        if len(payload) != count:
            raise ValueError(f"{len(payload)} bytes instead of {count}")
        return [*payload]
    if is_paired(spec):
        return paired_sums.unpack(payload, count)
    return integer_sums.unpack(payload, count, integer_sums.width(spec, ranks))


def values_of(
    spec: Spec, dtype: str, ranks: int, sums: list[int], scales: list[int], divisor: int
) -> list[float]:
    """What sums stand for; ``divisor``: 1, or the number of ranks in an average."""
    if is_power(spec):
        return exponent_sums.values_of(dtype, ranks, sums, scales[0], divisor)
    if is_paired(spec):
        return paired_sums.values_of(spec, dtype, sums, scales, ranks / divisor)
    return integer_sums.values_of(spec, dtype, sums, scales, divisor)
