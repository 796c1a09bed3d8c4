"""Sums of integers under scales that ranks share, from docs/codecs.md ("Sums of integers" and
"Sums of transformed integers") alone.

Plain Python over the other modules of this folder, no code of tersum's.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import block_rotation
from code_packing import ceil_div, pack_planes, unpack_planes
from encode_slice import choose_scale, codes_of, largest_of
from exponent_sums import UNIT
from float_rounding import LARGEST_BITS, bfloat16, float32, float_of, limit, round_to
from format_table import Format, Spec, integer
from paired_sums import HALVES
from random_rounding import random_half

LEVELS = 127
GROUP = 32
#: The root of the block of sum8:tensor.
ROOT = 32
Rows = list[list[float]]


def has_blocks(spec: Spec) -> bool:
    """Else one scale serves all values."""
    return spec.base not in ("sum8:tensor", UNIT.name)


def format_for(spec: Spec, ranks: int) -> Format:
    """The levels of one contribution."""
    for format in (HALVES, UNIT):
        if spec.base == format.name:
            return format
    return replace(integer(8), top=float(LEVELS if has_blocks(spec) else LEVELS // ranks))


def width(spec: Spec, ranks: int) -> int:
    """Bits of a sum."""
    return 8 + math.ceil(math.log2(ranks)) if has_blocks(spec) else 8


def block_of(spec: Spec, count: int) -> int:
    """Values that share a scale."""
    return spec.block if has_blocks(spec) else max(count, 1)


def is_turned(spec: Spec, block: list[float]) -> bool:
    """Is it coded as its transform?"""
    return spec.hadamard and len(block) == spec.block


def is_shrunk(spec: Spec, block: list[float]) -> bool:
    """Is it too short for that, under the scale of what is not?"""
    return spec.hadamard and len(block) < spec.block and not has_blocks(spec)


def coded_values(spec: Spec, dtype: str, row: list[float]) -> list[float]:
    """What is coded of a rank's values; what makes a block NaN does so to all of it."""
    out: list[float] = []
    for begin in range(0, len(row), spec.block):
        block = row[begin : begin + spec.block]
        if is_turned(spec, block):
            known = all(abs(x) <= largest_of(dtype) for x in block)
            block = block_rotation.there(block) if known else [math.nan] * spec.block
        elif is_shrunk(spec, block):
            block = [float32(x / ROOT) for x in block]
        out += block
    return out


def shared_scales(spec: Spec, dtype: str, rows: Rows) -> list[int]:
    """bf16 bits: the largest of the ranks' scales, NaN above all numbers."""
    count = len(rows[0])
    block = block_of(spec, count)
    format = format_for(spec, len(rows))
    scales = [0] * ceil_div(count, block)
    for row in rows:
        values = coded_values(spec, dtype, row)
        for i in range(len(scales)):
            wire, _ = choose_scale(format, dtype, values[i * block : (i + 1) * block], 0.0)
            scales[i] = max(scales[i], struct.unpack("<H", wire)[0])
    return scales


def codes(
    spec: Spec, ranks: int, row: list[float], scales: list[int], key: int, first: int = 0
) -> list[int]:
    """A contribution, as numbers; ``first``: the place of its first value in the array."""
    block = block_of(spec, len(row))
    # Of a block that is beyond its type the scale says so.
    values = coded_values(spec, "float32", row)
    out: list[int] = []
    for i, bits in enumerate(scales):
        part = values[i * block : (i + 1) * block]
        numbers = [random_half(key, first + i * block + j) for j in range(len(part))]
        scale = bfloat16(bits)
        coded = codes_of(format_for(spec, ranks), part, scale, numbers if spec.random else None)
        out += [code - 256 if code > LEVELS else code for code in coded]
    return out


def pack(numbers: list[int], bits: int) -> bytes:
    """Low bytes, then the bits above in planes."""
    out = bytes(number & 255 for number in numbers)
    for begin in range(0, len(numbers), GROUP):
        group = [number >> 8 & (1 << (bits - 8)) - 1 for number in numbers[begin : begin + GROUP]]
        out += pack_planes(group, bits - 8)
    return out


def unpack(payload: bytes, count: int, bits: int) -> list[int]:
    """What pack wrote."""
    sizes = [min(GROUP, count - begin) for begin in range(0, count, GROUP)]
    expected = count + sum((bits - 8) * ceil_div(size, 8) for size in sizes)
    if len(payload) != expected:
        raise ValueError(f"{len(payload)} bytes instead of {expected}")
    high: list[int] = []
    at = count
    for size in sizes:
        high += unpack_planes(payload[at:], size, bits - 8)
        at += (bits - 8) * ceil_div(size, 8)
    half = 1 << (bits - 1)
    numbers = [low + 256 * up for low, up in zip(payload[:count], high, strict=True)]
    return [number - 2 * half if number >= half else number for number in numbers]


def values_of(
    spec: Spec, dtype: str, numbers: list[int], scales: list[int], divisor: int
) -> list[float]:
    """What sums stand for."""
    scale_block = block_of(spec, len(numbers))
    out: list[float] = []
    for begin in range(0, len(numbers), spec.block):
        part = [float(number) for number in numbers[begin : begin + spec.block]]
        if is_turned(spec, part):
            signs = block_rotation.signs(spec.block)
            turned = block_rotation.hadamard(part)
            part = [n * sign for n, sign in zip(turned, signs, strict=True)]
        for i, number in enumerate(part, begin):
            scale = bfloat16(scales[i // scale_block])
            value = float32(number * scale)
            if is_shrunk(spec, part):
                value = float32(value * ROOT)
            value = float32(value / divisor)
            if divisor > 1 and spec.hadamard:
                value = limit(float_of(LARGEST_BITS[dtype]), value)
            out.append(round_to(dtype, value))
    return out
