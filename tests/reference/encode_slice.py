"""Encodes float values as slice payloads, written from docs/codecs.md ("Encoding") alone.

Exact arithmetic throughout; the roundings that the document names are made one by one. An encoder
may do more than a decoder needs, but this one pins the bytes: the golden payloads come out of it.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from decode_slice import INT4_GROUP, bfloat16, parse_spec, round_to

NAN_SCALE = 0x7FC0
#: The first magnitude that is no finite number of the type.
OVERFLOW = {
    "float32": Fraction(2) ** 128,
    "bfloat16": Fraction(2) ** 128 * (1 - Fraction(1, 512)),
    "float16": Fraction(65520),
}
#: What rounds to a finite number of the type, as a float32.
LARGEST = {
    "float32": Fraction(2) ** 128 * (1 - Fraction(1, 2**24)),
    "bfloat16": Fraction(2) ** 128 * (1 - Fraction(1, 512)) - Fraction(2) ** 104,
    "float16": Fraction(65520) - Fraction(1, 2**8),
}
CODE_MAX = {"int8": 127, "int4": 7}


def round_float32(value: Fraction) -> Fraction:
    """Nearest float32, ties to even; no overflow is expected."""
    if value == 0:
        return value
    exponent = -149
    while abs(value) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    return round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent


def scale_bits(absmax: float, base: str, dtype: str) -> int:
    """The least bfloat16 with code_max * scale >= absmax, within the type's range; or NaN."""
    if not math.isfinite(absmax) or Fraction(absmax) >= OVERFLOW[dtype]:
        return NAN_SCALE
    code_max = CODE_MAX[base]

    def reach(bits: int) -> Fraction:
        return code_max * Fraction(bfloat16(bits))

    low, high = 0, 0x7F7F
    while low < high:  # bfloat16 patterns of one sign are ordered like their values
        middle = (low + high) // 2
        low, high = (low, middle) if reach(middle) >= Fraction(absmax) else (middle + 1, high)
    while reach(low) > LARGEST[dtype]:
        low -= 1
    return low


def codes_of(values: list[float], bits: int, base: str) -> list[int]:
    """The codes of one block."""
    if bits in (0, NAN_SCALE):
        return [0] * len(values)
    scale = Fraction(bfloat16(bits))
    factor = Fraction(2) ** 64 if scale < Fraction(2) ** -126 else Fraction(1)
    inverse = round_float32(1 / (scale * factor))
    limit = CODE_MAX[base]
    products = [round_float32(Fraction(x) * factor * inverse) for x in values]
    return [max(-limit, min(limit, round(p))) for p in products]


def pack_int4(codes: list[int]) -> bytes:
    """Nibbles in groups of 32 values."""
    out = bytearray()
    for begin in range(0, len(codes), INT4_GROUP):
        group = [code & 15 for code in codes[begin : begin + INT4_GROUP]]
        half = -(-len(group) // 2)
        high = group[half:] + [0] * (2 * half - len(group))
        out += bytes(low | (h << 4) for low, h in zip(group[:half], high, strict=True))
    return bytes(out)


def bf16_bits(value: float, dtype: str) -> int:
    """A value on the bf16 wire."""
    if math.isnan(value):
        return NAN_SCALE
    rounded = round_to("bfloat16", value)
    last = bfloat16(0x7F7F if dtype == "float32" else 0x477F)
    if math.isfinite(value) and Fraction(abs(value)) < OVERFLOW[dtype] and abs(rounded) > last:
        rounded = math.copysign(last, value)
    return int(struct.unpack("<I", struct.pack("<f", rounded))[0]) >> 16


def encode(spec: str, dtype: str, values: list[float]) -> bytes:
    """The payload of a slice in a lossy format."""
    base, block = parse_spec(spec)
    if base == "bf16":
        return struct.pack(f"<{len(values)}H", *(bf16_bits(x, dtype) for x in values))
    scales: list[int] = []
    codes: list[int] = []
    for begin in range(0, len(values), block):
        part = values[begin : begin + block]
        absmax = math.nan if any(math.isnan(x) for x in part) else max(abs(x) for x in part)
        scales.append(scale_bits(absmax, base, dtype))
        codes += codes_of(part, scales[-1], base)
    packed = struct.pack(f"<{len(codes)}b", *codes) if base == "int8" else pack_int4(codes)
    return struct.pack(f"<{len(scales)}H", *scales) + packed
