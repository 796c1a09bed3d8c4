"""The modifier +sparse: docs/codecs.md, "The modifier +sparse". No code of tersum's."""

from __future__ import annotations

import math
import struct

from float_rounding import LARGEST_BITS, bfloat16, bits_of, float32, float_of, limit, round_to

SECTION = 64512
ENTRY = struct.Struct("<HH")


def sections(count: int) -> list[range]:
    """The values of a slice, section by section."""
    return [range(begin, min(begin + SECTION, count)) for begin in range(0, count, SECTION)]


def outlier_count(count: int, hundredths: int) -> int:
    """k of the document, for a section of ``count`` values and P in hundredths of a percent."""
    return -(-count * hundredths // 10_000)


def entry_bits(value: float, dtype: str) -> int:
    """A finite value as bf16; it stays finite in the value type."""
    last = bfloat16(0x477F if dtype == "float16" else 0x7F7F)
    return bits_of(limit(last, round_to("bfloat16", value))) >> 16


def split(values: list[float], hundredths: int, dtype: str) -> tuple[bytes, list[float]]:
    """The entries of a section, and what is left for the base format."""
    largest = float_of(LARGEST_BITS[dtype])
    finite = [x if abs(x) <= largest else 0.0 for x in values]
    order = sorted(range(len(values)), key=lambda i: (-abs(finite[i]), i))
    taken = sorted(order[: outlier_count(len(values), hundredths)])
    least = min(abs(finite[i]) for i in taken)
    left = [x if abs(x) <= largest else math.nan for x in values]
    entries = b""
    for i in taken:
        bits = entry_bits(finite[i], dtype)
        entries += ENTRY.pack(i, bits)
        rest = finite[i] - bfloat16(bits)
        if not math.isnan(left[i]):
            left[i] = rest if abs(rest) <= least else 0.0
    return entries, left


def add_entries(entries: bytes, values: list[float], dtype: str) -> list[float]:
    """The decoded section with its outliers added."""
    largest = float_of(LARGEST_BITS[dtype])
    out = list(values)
    for index, bits in ENTRY.iter_unpack(entries):
        if index < len(out):
            out[index] = limit(largest, float32(out[index] + bfloat16(bits)))
    # float32 is limited already.
    return out if dtype == "float32" else [limit(largest, x) for x in out]


def refused_entry(entries: bytes, count: int, dtype: str) -> str | None:
    """The first entry that no encoder writes, of a section of ``count`` values."""
    before = -1
    most = 0x477F if dtype == "float16" else 0x7F7F
    for number, (index, bits) in enumerate(ENTRY.iter_unpack(entries)):
        if not before < index < count or bits & 0x7FFF > most:
            return f"outlier:{number}"
        before = index
    return None
