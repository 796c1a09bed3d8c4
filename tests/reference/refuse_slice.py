"""Which slice payloads ``decode_payload`` refuses, from docs/codecs.md, "Refused payloads".

Beside decode_slice.py, as plain and as independent of tersum: a decoder gives every payload of the
right length a value, but not every payload is one that an encoder writes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import clip_report
from block_layouts import format_of, layout_bytes, layout_sections, pieces
from code_packing import ceil_div, code_bytes, unpack_codes
from decode_slice import (
    payload_bytes,
    read_scales,
    section_bytes,
    section_counts,
    slice_scale_bytes,
)
from float_rounding import LARGEST_BITS, float32, float_of
from format_table import Format, Spec, parse_spec, rows_of
from sparse_sections import ENTRY, outlier_count, refused_entry

#: The only NaN that is written as a scale, by kind of scale.
NAN_SCALE = {"bf16": 0x7FC0, "mean": 0x7FC0, "e8m0": 0xFF, "e8m0 floor": 0xFF, "e4m3": 0x7F}
#: Patterns from here on have the sign bit, or no number but the NaN above.
NO_SCALE = {"bf16": 0x7F80, "mean": 0x7F80, "e8m0": 0xFF, "e8m0 floor": 0xFF, "e4m3": 0x7F}


def is_written_scale(format: Format, pattern: int, scale: float) -> bool:
    """Whether an encoder writes the pattern of one block, which stands for ``scale``."""
    if pattern == NAN_SCALE[format.scale]:
        return True
    return pattern < NO_SCALE[format.scale] and math.isfinite(scale)


def refused_scale(spec: Spec, format: Format, payload: bytes, blocks: int) -> str | None:
    """The first scale that is none."""
    begin = slice_scale_bytes(format)
    if begin > 0 and int.from_bytes(payload[:begin], "little") >= 0x7F800000:
        return "slice"
    size = format.scale_bytes
    for block, scale in enumerate(read_scales(spec, format, payload, blocks)):
        at = begin + block * size
        if not is_written_scale(format, int.from_bytes(payload[at : at + size], "little"), scale):
            return f"block:{block}"
    return None


def refused_value(spec: Spec, format: Format, dtype: str, count: int, payload: bytes) -> str | None:
    """The first value whose code is none, or that is beyond the value type."""
    scales = read_scales(spec, format, payload, ceil_div(count, spec.block))
    codes = unpack_codes(format, payload[len(payload) - code_bytes(format, count) :], count)
    largest = float_of(LARGEST_BITS[dtype])
    for index, code in enumerate(codes):
        level = math.nan if code is None else format.levels[code]
        most_negative = format.kind == "integer" and level < -format.largest
        if not math.isfinite(level) or most_negative:
            return f"value:{index}"
        if abs(float32(level * scales[index // spec.block])) > largest:
            return f"value:{index}"
    return None


def why_refused(text: str, dtype: str, count: int, payload: bytes) -> str | None:
    """ "bytes:N" where N are needed, "slice", "block:K", "value:K", "outlier:K" or "section:K"; K
    is counted from the start of a row or section; "report:contributions", "report:sums". None for
    what is accepted."""
    spec = parse_spec(text)
    expected = payload_bytes(spec, dtype, count)
    if len(payload) != expected:
        return f"bytes:{expected}"
    if spec.format is None or count == 0:
        return None
    for row, places in rows_of(spec, count):
        size = payload_bytes(replace(row, clip=False), dtype, len(places))
        refused = refused_row(row, spec.format, dtype, len(places), payload[:size])
        if refused:
            return refused
        payload = payload[size:]
    return clip_report.why_refused(payload) if spec.clip else None


def refused_row(spec: Spec, format: Format, dtype: str, count: int, payload: bytes) -> str | None:
    """Of a payload without +rows."""
    if not spec.sparse:
        return refused_dense(spec, format, dtype, count, payload)
    for in_section in section_counts(spec, count):
        size = section_bytes(spec, in_section)
        entries = ENTRY.size * outlier_count(in_section, spec.sparse)
        refused = refused_entry(payload[:entries], in_section, dtype)
        refused = refused or refused_dense(
            spec, format, "float32", in_section, payload[entries:size]
        )
        if refused:
            return refused
        payload = payload[size:]
    return None


def refused_dense(spec: Spec, format: Format, dtype: str, count: int, payload: bytes) -> str | None:
    """Of a payload without outliers, however its blocks are laid out."""
    if not (spec.mixed or spec.adaptive):
        return refused_blocks(spec, format, dtype, count, payload)
    for number, section in enumerate(layout_sections(count)):
        size = layout_bytes(spec, len(section))
        blocks = pieces(spec, len(section), payload[:size])
        if blocks is None:
            return f"section:{number}"
        for block, (piece, places, of_block) in enumerate(blocks):
            if refused_blocks(piece, format_of(piece), "float32", len(places), of_block):
                return f"block:{block}"
        payload = payload[size:]
    return None


def refused_blocks(
    spec: Spec, format: Format, dtype: str, count: int, payload: bytes
) -> str | None:
    """Of a payload without outliers."""
    blocks = ceil_div(count, spec.block)
    refused = refused_scale(spec, format, payload, blocks)
    return refused or refused_value(spec, format, dtype, count, payload)
