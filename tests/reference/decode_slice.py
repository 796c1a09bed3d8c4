"""Decodes slice payloads, written from docs/codecs.md ("Payload layout") alone.

Plain Python, one value at a time, exact arithmetic: slow and easy to check against the document. It
shares no code with tersum. ``python decode_slice.py SPEC DTYPE COUNT FILE`` prints the values.
"""

from __future__ import annotations

import math
import struct
import sys
from fractions import Fraction
from pathlib import Path

Number = int | float

#: struct formats of the value types that travel as they are.
EXACT_FORMATS = {
    "float32": "<f",
    "float16": "<e",
    "float64": "<d",
    "int32": "<i",
    "int64": "<q",
    "uint8": "<B",
}
ITEM_BYTES = {"bfloat16": 2} | {name: struct.calcsize(f) for name, f in EXACT_FORMATS.items()}
DEFAULT_BLOCK = 128
INT4_GROUP = 32


def bfloat16(bits: int) -> float:
    """The number that 16 bits of bfloat16 stand for: the upper half of a float32."""
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def parse_spec(spec: str) -> tuple[str, int]:
    """``"int8/32"`` -> ``("int8", 32)``; the block is 0 for formats without one."""
    base, _, block = spec.partition("/")
    if base in ("int8", "int4"):
        return base, int(block) if block else DEFAULT_BLOCK
    return base, 0


def payload_bytes(spec: str, dtype: str, count: int) -> int:
    """Bytes of a slice of ``count`` values."""
    base, block = parse_spec(spec)
    if base == "exact":
        return count * ITEM_BYTES[dtype]
    if base == "bf16":
        return count * 2
    blocks = -(-count // block)
    return 2 * blocks + (count if base == "int8" else -(-count // 2))


def int8_codes(codes: bytes, count: int) -> list[int]:
    """One two's-complement byte per value."""
    return list(struct.unpack(f"<{count}b", codes))


def int4_codes(codes: bytes, count: int) -> list[int]:
    """Groups of 32 values: byte i of h holds value i (low nibble) and value h + i (high nibble)."""
    values: list[int] = []
    at = 0
    while len(values) < count:
        size = min(INT4_GROUP, count - len(values))
        half = -(-size // 2)
        group = codes[at : at + half]
        at += half
        nibbles = [byte & 15 for byte in group] + [byte >> 4 for byte in group]
        values += [n - 16 if n >= 8 else n for n in nibbles[:size]]
    return values


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


def decode(spec: str, dtype: str, count: int, payload: bytes) -> list[Number]:
    """The values of a slice. ValueError if the payload has another size than its values need."""
    if len(payload) != payload_bytes(spec, dtype, count):
        raise ValueError(
            f"{spec} of {count} {dtype}: {payload_bytes(spec, dtype, count)} bytes expected, "
            f"{len(payload)} found"
        )
    base, block = parse_spec(spec)
    if base == "bf16" or (base == "exact" and dtype == "bfloat16"):
        patterns = struct.unpack(f"<{count}H", payload)
        return [round_to(dtype, bfloat16(bits)) for bits in patterns]
    if base == "exact":
        return [value for (value,) in struct.iter_unpack(EXACT_FORMATS[dtype], payload)]
    blocks = -(-count // block)
    scales = [bfloat16(bits) for bits in struct.unpack(f"<{blocks}H", payload[: 2 * blocks])]
    codes = (int8_codes if base == "int8" else int4_codes)(payload[2 * blocks :], count)
    values: list[Number] = []
    for index, code in enumerate(codes):
        scale = scales[index // block]
        values.append(round_to(dtype, code * scale) if math.isfinite(scale) else math.nan)
    return values


def main() -> None:
    """Command line: SPEC DTYPE COUNT FILE."""
    spec, dtype, count, path = sys.argv[1:]
    for value in decode(spec, dtype, int(count), Path(path).read_bytes()):
        print(repr(value))


if __name__ == "__main__":
    main()
