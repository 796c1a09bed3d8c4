"""Decodes slice payloads, written from docs/codecs.md alone.

Plain Python, one value at a time, every rounding by name: slow and easy to check against the
document. It shares no code with tersum. ``python decode_slice.py SPEC DTYPE COUNT FILE`` prints the
values.
"""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import block_rotation
from block_layouts import format_of, layout_bytes, layout_sections, pieces, plain_bytes
from channel_factors import Factors
from clip_report import REPORT_BYTES
from code_packing import ceil_div, code_bytes, unpack_codes
from float_rounding import bfloat16, float32, round_to
from format_table import E4M3, Format, Spec, parse_spec, rows_of
from sparse_sections import ENTRY, add_entries, outlier_count, sections

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


def slice_scale_bytes(format: Format) -> int:
    """Of the scale that the whole slice has."""
    return 4 if format.scale == "e4m3" else 0


def payload_bytes(spec: Spec, dtype: str, count: int) -> int:
    """Bytes of a slice of ``count`` values."""
    if spec.format is None:
        return count * (ITEM_BYTES[dtype] if spec.base == "exact" else 2)
    rows = sum(
        section_bytes(row, in_section)
        for row, values in rows_of(spec, count)
        for in_section in section_counts(row, len(values))
    )
    return rows + (REPORT_BYTES if spec.clip and count > 0 else 0)


def section_counts(spec: Spec, count: int) -> list[int]:
    """Of the values in each section; without +sparse the whole slice is one."""
    if spec.sparse:
        return [len(section) for section in sections(count)]
    return [count] if count > 0 else []


def section_bytes(spec: Spec, count: int) -> int:
    """Of a section: its outliers and its blocks."""
    return dense_bytes(spec, count) + ENTRY.size * outlier_count(count, spec.sparse)


def dense_bytes(spec: Spec, count: int) -> int:
    """Of blocks, however they are laid out."""
    if spec.mixed or spec.adaptive:
        return sum(layout_bytes(spec, len(section)) for section in layout_sections(count))
    return plain_bytes(spec, count)


def number_or_nan(value: float, refuses_sign: bool) -> float:
    """A scale: what is infinite counts as NaN, and what has a sign in most formats."""
    if not math.isfinite(value) or (refuses_sign and math.copysign(1, value) < 0):
        return math.nan
    return value


def read_scales(spec: Spec, format: Format, payload: bytes, blocks: int) -> list[float]:
    """Of each block."""
    begin = slice_scale_bytes(format)
    data = payload[begin : begin + blocks * format.scale_bytes]
    if format.scale.startswith("e8m0"):
        return [math.nan if byte == 255 else 2.0 ** (byte + format.exponent) for byte in data]
    if format.scale == "e4m3":
        of_slice = number_or_nan(struct.unpack("<f", payload[:4])[0], True)
        return [float32(number_or_nan(E4M3[byte], True) * of_slice) for byte in data]
    refuses_sign = spec.transforms or spec.clip or format.name not in ("int8", "int4")
    patterns = struct.unpack(f"<{blocks}H", data)
    return [number_or_nan(bfloat16(bits), refuses_sign) for bits in patterns]


def turn_back(spec: Spec, dtype: str, values: list[float], first: int) -> list[float]:
    """Undoes +hadamard, +flatten or +kronecker."""
    if spec.kronecker is not None:
        return block_rotation.limited(spec.kronecker.back(values, first), dtype)
    out: list[float] = []
    for begin in range(0, len(values), spec.block):
        part = values[begin : begin + spec.block]
        at = first + begin
        if len(part) == spec.block:
            out += block_rotation.back(part, spec.factors, at)
        else:
            out += spec.factors.back(part, at) if spec.factors else part
    return block_rotation.limited(out, dtype)


def decode_blocks(
    spec: Spec, format: Format, dtype: str, count: int, payload: bytes, first: int
) -> list[float]:
    """The values of a slice of a format with blocks; ``first``: its first value's index in its
    array."""
    blocks = ceil_div(count, spec.block)
    scales = read_scales(spec, format, payload, blocks)
    codes = unpack_codes(format, payload[len(payload) - code_bytes(format, count) :], count)
    values = []
    for index, code in enumerate(codes):
        level = math.nan if code is None else format.levels[code]
        values.append(float32(level * scales[index // spec.block]))
    if spec.transforms:
        values = turn_back(spec, dtype, values, first)
    return [round_to(dtype, value) for value in values]


def decode_dense(
    spec: Spec, format: Format, dtype: str, count: int, payload: bytes, first: int
) -> list[float]:
    """The values of a slice without outliers, however its blocks are laid out."""
    if not (spec.mixed or spec.adaptive):
        return decode_blocks(spec, format, dtype, count, payload, first)
    values: list[float] = []
    for section in layout_sections(count):
        size = layout_bytes(spec, len(section))
        blocks = pieces(spec, len(section), payload[:size])
        if blocks is None:
            values += [math.nan] * len(section)
        for piece, places, block in blocks or []:
            at = first + section[0] + places[0]
            values += decode_blocks(piece, format_of(piece), "float32", len(places), block, at)
        payload = payload[size:]
    return [round_to(dtype, value) for value in block_rotation.limited(values, dtype)]


def decode_sections(
    spec: Spec, format: Format, dtype: str, count: int, payload: bytes, first: int
) -> list[float]:
    """The values of a slice with +sparse."""
    values: list[float] = []
    for in_section in section_counts(spec, count):
        size = section_bytes(spec, in_section)
        section, payload = payload[:size], payload[size:]
        entries = ENTRY.size * outlier_count(in_section, spec.sparse)
        decoded = decode_dense(spec, format, "float32", in_section, section[entries:], first)
        values += add_entries(section[:entries], decoded, dtype)
        first += in_section
    return [round_to(dtype, value) for value in values]


def decode(
    text: str,
    dtype: str,
    count: int,
    payload: bytes,
    first: int = 0,
    factors: Factors | None = None,
) -> list[Number]:
    """The values of a slice. ValueError if the payload has another size than its values need.
    ``first``, the index of its first value in its array, matters to channels; ``factors``: what the
    state of +flatten has."""
    spec = replace(parse_spec(text), factors=factors)
    expected = payload_bytes(spec, dtype, count)
    if len(payload) != expected:
        raise ValueError(f"{text} of {count} {dtype}: {expected} bytes, not {len(payload)}")
    if spec.format is not None:
        values: list[Number] = []
        for row, places in rows_of(spec, count):
            size = payload_bytes(replace(row, clip=False), dtype, len(places))
            decode_row = decode_sections if row.sparse else decode_dense
            data = payload[:size]
            values += decode_row(row, spec.format, dtype, len(places), data, first + places[0])
            payload = payload[size:]
        return values
    if spec.base == "bf16" or dtype == "bfloat16":
        patterns = struct.unpack(f"<{count}H", payload)
        return [round_to(dtype, bfloat16(bits)) for bits in patterns]
    return [value for (value,) in struct.iter_unpack(EXACT_FORMATS[dtype], payload)]


def main() -> None:
    """Command line: SPEC DTYPE COUNT FILE."""
    spec, dtype, count, path = sys.argv[1:]
    for value in decode(spec, dtype, int(count), Path(path).read_bytes()):
        print(repr(value))


if __name__ == "__main__":
    main()
