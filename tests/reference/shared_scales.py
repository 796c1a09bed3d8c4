"""Sums whose ranks share scales, of any kind: what golden sums are made and checked with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import exponent_sums
import integer_sums
import paired_sums
from code_packing import ceil_div
from format_table import Spec, rows_of


def is_paired(spec: Spec) -> bool:
    """Added by a table of codes."""
    return spec.base == paired_sums.HALVES.name


def is_power(spec: Spec) -> bool:
    """Added at random, as powers of two; what is neither is added as integers."""
    return spec.base == exponent_sums.UNIT.name


def scale_bits(spec: Spec, dtype: str, arrays: list[list[float]]) -> list[int]:
    """What the ranks agree on: bf16 bits, those of a row behind those of the one before."""
    bits: list[int] = []
    for inner, span in rows_of(spec, len(arrays[0])):
        parts = [[array[i] for i in span] for array in arrays]
        bits += integer_sums.shared_scales(inner, dtype, parts)
    return bits


def scales_of_rows(spec: Spec, count: int, scales: list[int]) -> Iterator[list[int]]:
    """Those of each row."""
    at = 0
    for inner, span in rows_of(spec, count):
        here = ceil_div(len(span), integer_sums.block_of(inner, len(span)))
        yield scales[at : at + here]
        at += here


def codes(spec: Spec, ranks: int, row: list[float], scales: list[int], key: int) -> list[int]:
    """A contribution."""
    if is_power(spec):
        return exponent_sums.codes(ranks, row, scales[0], key)
    out: list[int] = []
    spans = rows_of(spec, len(row))
    for (inner, span), own in zip(spans, scales_of_rows(spec, len(row), scales), strict=True):
        values = [row[i] for i in span]
        out += integer_sums.codes(inner, ranks, values, own, key, span.start)
    return out


def pack_contribution(spec: Spec, codes: list[int]) -> bytes:
    """What a rank sends."""
    if is_power(spec):
        return bytes(codes)
    rows = [[codes[i] for i in span] for _, span in rows_of(spec, len(codes))]
    return b"".join(
        paired_sums.pack(row) if is_paired(spec) else integer_sums.pack(row, 8) for row in rows
    )


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
    bits = integer_sums.width(spec, ranks)
    rows = [[sums[i] for i in span] for _, span in rows_of(spec, len(sums))]
    return b"".join(integer_sums.pack(row, bits) for row in rows)


def unpack_sum(spec: Spec, ranks: int, payload: bytes, count: int) -> list[int]:
    """What pack_sum wrote; ValueError for another number of bytes."""
    if is_power(spec):
        if len(payload) != count:
            raise ValueError(f"{len(payload)} bytes instead of {count}")
        return [*payload]
    out: list[int] = []
    at = 0
    for _, span in rows_of(spec, count):
        values = len(span)
        end = at + len(pack_sum(replace(spec, rows=0), ranks, [0] * values))
        part = payload[at : len(payload) if span.stop == count else end]
        if is_paired(spec):
            out += paired_sums.unpack(part, values)
        else:
            out += integer_sums.unpack(part, values, integer_sums.width(spec, ranks))
        at = end
    return out


def values_of(
    spec: Spec, dtype: str, ranks: int, sums: list[int], scales: list[int], divisor: int
) -> list[float]:
    """What sums stand for; ``divisor``: 1, or the number of ranks in an average."""
    if is_power(spec):
        return exponent_sums.values_of(dtype, ranks, sums, scales[0], divisor)
    out: list[float] = []
    spans = rows_of(spec, len(sums))
    for (inner, span), own in zip(spans, scales_of_rows(spec, len(sums), scales), strict=True):
        part = [sums[i] for i in span]
        if is_paired(spec):
            out += paired_sums.values_of(inner, dtype, part, own, ranks / divisor)
        else:
            out += integer_sums.values_of(inner, dtype, part, own, divisor)
    return out
