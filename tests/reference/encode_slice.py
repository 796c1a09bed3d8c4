"""Encodes float values as slice payloads, written from docs/codecs.md ("Encoding") alone.

The roundings that the document names are made one by one. An encoder may do more than a decoder
needs, but this one pins the bytes: the golden payloads come out of it.
"""

from __future__ import annotations

import bisect
import math
import struct
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise

import block_rotation
from block_layouts import (
    WIDEST,
    block_ranges,
    changed,
    choose_cuts,
    choose_map,
    cut_bits,
    format_of,
    layout_sections,
    pack_bits,
    pieces,
)
from channel_factors import Factors
from clip_report import REPORT_BYTES
from code_packing import ceil_div, pack_codes
from decode_slice import decode_blocks
from float_rounding import LARGEST_BITS, bfloat16, bits_of, float32, float_of, round_to
from format_table import E4M3, Format, Spec, parse_spec, rows_of
from random_rounding import random_code, random_half
from relative_scales import choose_step, pattern_of, shared_exponent
from sparse_sections import sections, split

NAN_SCALE = 0x7FC0
NAN_BYTES = {
    "bf16": b"\xc0\x7f",
    "mean": b"\xc0\x7f",
    "e8m0": b"\xff",
    "e8m0 floor": b"\xff",
    "e4m3": b"\x7f",
}
#: 1/s of anything larger is not exact for s = 2^k.
BF16_SCALE_MAX = 2.0**127
LEAST_NORMAL = 2.0**-126
MEAN_SUMS = 16


def largest_of(dtype: str) -> float:
    """L of the document."""
    return float_of(LARGEST_BITS[dtype])


def top_bf16(format: Format, dtype: str) -> float:
    """The largest scale that keeps the largest level finite."""
    top = Fraction(largest_of(dtype)) / Fraction(format.largest)
    bits = bits_of(BF16_SCALE_MAX) >> 16
    while Fraction(bfloat16(bits)) > top:
        bits -= 1
    return bfloat16(bits)


def bf16_up(format: Format, dtype: str, absmax: float) -> float:
    """The least bfloat16 that brings ``absmax`` into the levels."""
    low, high = 0, 0x7F7F
    while low < high:  # bfloat16 patterns of one sign are ordered like their values
        middle = (low + high) // 2
        reaches = Fraction(format.largest) * Fraction(bfloat16(middle)) >= Fraction(absmax)
        low, high = (low, middle) if reaches else (middle + 1, high)
    return min(bfloat16(low), top_bf16(format, dtype))


def mean_scale(format: Format, dtype: str, block: list[float]) -> float:
    """The mean magnitude, in sixteen sums."""
    sums = [0.0] * MEAN_SUMS
    for i, x in enumerate(block):
        sums[i % MEAN_SUMS] = float32(sums[i % MEAN_SUMS] + float32(abs(x) * 2.0**-10))
    half = MEAN_SUMS // 2
    while half > 0:
        for j in range(half):
            sums[j] = float32(sums[j] + sums[j + half])
        half //= 2
    mean = float32(sums[0] * float32(1024 / len(block)))
    return min(round_to("bfloat16", mean), top_bf16(format, dtype))


def leading_bit(value: Fraction) -> Fraction:
    """The largest power of two that is not above ``value``; 0 of 0."""
    if value == 0:
        return value
    power = Fraction(1)
    while power > value:
        power /= 2
    while 2 * power <= value:
        power *= 2
    return power


def e8m0_byte(format: Format, dtype: str, absmax: float) -> int:
    """The least power of two that brings ``absmax`` into the levels; by the floor rule the one that
    brings its leading bit there. Never one whose largest level is no number of the type."""
    byte = 0
    largest = Fraction(format.largest)
    if format.scale == "e8m0 floor":
        largest, absmax = leading_bit(largest), leading_bit(Fraction(absmax))
    while byte < 254:
        scale = Fraction(2) ** (byte + format.exponent)
        if scale * largest >= Fraction(absmax):
            break
        if 2 * scale * Fraction(format.largest) > Fraction(largest_of(dtype)):
            break
        byte += 1
    return byte


def nearest_e4m3(value: float) -> int:
    """Ties to the even byte; 448 at most."""
    exact = Fraction(value)
    return min(range(0x7F), key=lambda byte: (abs(Fraction(E4M3[byte]) - exact), byte % 2))


def choose_scale(
    format: Format, dtype: str, block: list[float], of_slice: float
) -> tuple[bytes, float]:
    """A block's scale on the wire, and as a number."""
    absmax = math.nan if any(math.isnan(x) for x in block) else max(abs(x) for x in block)
    if not absmax <= largest_of(dtype):
        return NAN_BYTES[format.scale], math.nan
    if format.scale.startswith("e8m0"):
        byte = e8m0_byte(format, dtype, absmax)
        return bytes([byte]), 2.0 ** (byte + format.exponent)
    if format.scale == "e4m3":
        wanted = float32(float32(absmax / format.largest) / of_slice) if of_slice > 0 else 0.0
        byte = nearest_e4m3(wanted)
        return bytes([byte]), float32(E4M3[byte] * of_slice)
    is_mean = format.scale == "mean"
    scale = mean_scale(format, dtype, block) if is_mean else bf16_up(format, dtype, absmax)
    return struct.pack("<H", bits_of(scale) >> 16), scale


def minifloat_code(format: Format, u: float) -> int:
    """The nearest magnitude, ties to the even code, and the sign of ``u``."""
    half = 1 << (format.bits - 1)
    top = format.levels.index(format.largest)
    exact = Fraction(min(abs(u), format.largest))
    code = bisect.bisect_right(format.levels, exact, 0, top + 1) - 1
    if code < top:
        down = exact - Fraction(format.levels[code])
        up = Fraction(format.levels[code + 1]) - exact
        code += 1 if up < down or (up == down and code % 2 == 1) else 0
    return code + (half if math.copysign(1, u) < 0 else 0)


def choose_code(format: Format, u: float) -> int:
    """Of a scaled value."""
    if format.kind == "minifloat":
        return minifloat_code(format, u)
    if format.kind == "integer":
        top = int(format.largest)
        return max(-top, min(top, round(Fraction(u)))) % (1 << format.bits)
    return sum(u >= float32(a / 2 + b / 2) for a, b in pairwise(format.levels))


def codes_of(
    format: Format, block: list[float], scale: float, numbers: list[int] | None
) -> list[int]:
    """Of one block; ``numbers``: the random bits of its values, where they are rounded by such."""
    if not scale > 0:
        return [format.zero_code] * len(block)
    factor = 2.0**64 if scale < LEAST_NORMAL else 1.0
    inverse = float32(1 / (scale * factor))
    scaled = [float32(x * factor * inverse) for x in block]
    if numbers is None:
        return [choose_code(format, u) for u in scaled]
    return [random_code(format, u, bits) for u, bits in zip(scaled, numbers, strict=True)]


def slice_scale(format: Format, dtype: str, values: list[float]) -> float:
    """t of the document."""
    largest = largest_of(dtype)
    top = max((abs(x) for x in values if abs(x) <= largest), default=0.0)
    scale = float32(top / (format.largest * 448))
    if float32(float32(448 * scale) * format.largest) > largest:
        scale = float_of(bits_of(scale) - 1)
    return scale


def bf16_bits(value: float, dtype: str) -> int:
    """A value on the bf16 wire."""
    if math.isnan(value):
        return NAN_SCALE
    rounded = round_to("bfloat16", value)
    last = bfloat16(0x7F7F if dtype == "float32" else 0x477F)
    if abs(value) <= largest_of(dtype) and abs(rounded) > last:
        rounded = math.copysign(last, value)
    return bits_of(rounded) >> 16


def transformed(
    spec: Spec, dtype: str, values: list[float], first: int
) -> tuple[list[float], list[bool]]:
    """The values as they are coded, and which blocks have no finite values."""
    if spec.kronecker is not None:
        blocks = ceil_div(len(values), spec.block)
        return spec.kronecker.there(values, first), [False] * blocks
    out: list[float] = []
    lost: list[bool] = []
    for begin in range(0, len(values), spec.block):
        at = first + begin
        block = values[begin : begin + spec.block]
        if spec.factors is not None:
            block = spec.factors.there(block, at)
        rotates = spec.hadamard and len(block) == spec.block
        coded = block_rotation.there(block) if rotates else block
        out += coded
        lost.append(rotates and block_rotation.overflows(coded, dtype, spec.factors, at))
    return out, lost


def squared_error(spec: Spec, values: list[float], first: int) -> float:
    """Of coding a block by itself; 0 where something is not finite."""
    payload = encode_blocks(spec, format_of(spec), "float32", values, 0, first)
    decoded = decode_blocks(spec, format_of(spec), "float32", len(values), payload, first)
    sums = [0.0] * 16
    for i, (x, y) in enumerate(zip(values, decoded, strict=True)):
        off = float32(x - y)
        sums[i % 16] += off * off
    for half in (8, 4, 2, 1):
        sums = [sums[j] + sums[j + half] for j in range(half)]
    return sums[0] if math.isfinite(sums[0]) else 0.0


def encode_mixed(spec: Spec, values: list[float], first: int) -> bytes:
    """A section of +mixed."""
    blocks = block_ranges(spec, len(values))
    whole = [
        ([values[i] for i in block], first + block[0])
        for block in blocks
        if len(block) == spec.block
    ]
    ways = [changed(spec, change) for change in (0, 1, 2)]
    errors = [[squared_error(way, *block) for way in ways] for block in whole]
    changes = choose_map(errors) + [0] * (len(blocks) - len(whole))
    out = pack_bits(changes, 2)
    found = pieces(spec, len(values), out)
    assert found is not None
    for piece, places, _ in found:
        block = [values[i] for i in places]
        out += encode_blocks(piece, format_of(piece), "float32", block, 0, first + places[0])
    return out


def encode_adaptive(spec: Spec, values: list[float]) -> bytes:
    """A section of +adaptive."""
    format = format_of(spec)
    most = bits_of(top_bf16(format, "float32")) >> 16
    sizes = choose_cuts(spec, values)
    exponents, steps = b"", b""
    codes: list[int] = []
    begins = [*accumulate(sizes, initial=0)][:-1]
    for group in range(0, len(values), WIDEST):
        blocks = [
            values[begin : begin + size]
            for begin, size in zip(begins, sizes, strict=True)
            if group <= begin < group + WIDEST
        ]
        wires = [choose_scale(format, "float32", block, 0.0)[0] for block in blocks]
        patterns = [int.from_bytes(wire, "little") for wire in wires]
        exponent = shared_exponent(patterns)
        exponents += bytes([exponent])
        for block, pattern in zip(blocks, patterns, strict=True):
            step = choose_step(format, most, exponent, pattern)
            steps += bytes([step])
            codes += codes_of(format, block, bfloat16(pattern_of(exponent, step)), None)
    return exponents + cut_bits(spec, len(values), sizes) + steps + pack_codes(format, codes)


def encode_layout(spec: Spec, values: list[float], first: int) -> bytes:
    """A section of +mixed or +adaptive."""
    return encode_mixed(spec, values, first) if spec.mixed else encode_adaptive(spec, values)


def encode_dense(
    spec: Spec, format: Format, dtype: str, values: list[float], key: int, first: int
) -> bytes:
    """The payload of a slice without outliers."""
    if not (spec.mixed or spec.adaptive):
        return encode_blocks(spec, format, dtype, values, key, first)
    largest = largest_of(dtype)
    known = [x if abs(x) <= largest else math.nan for x in values]
    return b"".join(
        encode_layout(spec, [known[i] for i in section], first + section[0])
        for section in layout_sections(len(values))
    )


def encode_sections(
    spec: Spec, format: Format, dtype: str, values: list[float], key: int, first: int
) -> bytes:
    """The payload of a slice with +sparse."""
    out = b""
    for section in sections(len(values)):
        entries, left = split([values[i] for i in section], spec.sparse, dtype)
        out += entries + encode_dense(spec, format, "float32", left, key, first + section[0])
    return out


def encode(
    text: str,
    dtype: str,
    values: list[float],
    key: int = 0,
    first: int = 0,
    factors: Factors | None = None,
) -> bytes:
    """The payload of a slice in a lossy format, outside of a call; ``key`` matters to +sr,
    ``first``, the index of its first value in its array, to it and to channels, ``factors``: what
    the state of +flatten has."""
    spec = replace(parse_spec(text), factors=factors)
    if spec.format is None:
        return struct.pack(f"<{len(values)}H", *(bf16_bits(x, dtype) for x in values))
    encode_row = encode_sections if spec.sparse else encode_dense
    payload = b"".join(
        encode_row(row, spec.format, dtype, [values[i] for i in places], key, first + places[0])
        for row, places in rows_of(spec, len(values))
    )
    return payload + (bytes(REPORT_BYTES) if spec.clip and values else b"")


def encode_blocks(
    spec: Spec, format: Format, dtype: str, values: list[float], key: int, first: int
) -> bytes:
    """The payload of a slice of a format with blocks."""
    coded, lost = transformed(spec, dtype, values, first)
    return encode_coded(spec, format, dtype, coded, lost, key, first)


def encode_coded(
    spec: Spec,
    format: Format,
    dtype: str,
    coded: list[float],
    lost: list[bool],
    key: int,
    first: int,
) -> bytes:
    """The same of values as they are coded; ``lost``: which blocks have no finite values."""
    of_slice = slice_scale(format, dtype, coded) if format.scale == "e4m3" else 0.0
    out = struct.pack("<f", of_slice) if format.scale == "e4m3" else b""
    codes: list[int] = []
    for number, begin in enumerate(range(0, len(coded), spec.block)):
        block = coded[begin : begin + spec.block]
        wire, scale = choose_scale(format, dtype, [math.inf] if lost[number] else block, of_slice)
        out += wire
        places = range(first + begin, first + begin + len(block))
        numbers = [random_half(key, place) for place in places] if spec.random else None
        codes += codes_of(format, block, scale, numbers)
    return out + pack_codes(format, codes)
