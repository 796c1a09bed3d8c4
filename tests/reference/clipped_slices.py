"""Slices of +clip:learned with what a call knows: both layouts, and sums of them. From
docs/codecs.md, "The modifier +clip:learned", and docs/wire-format.md, "Reports of learned clips".

Plain Python over the other modules of this folder, no code of tersum's.
"""

from __future__ import annotations

import math
import struct

import block_rotation
import clip_report
from block_layouts import block_ranges, format_of
from clip_report import NAN_BITS, REPORT_BYTES, Part, Report
from code_packing import ceil_div, code_bytes, pack_codes, unpack_codes
from decode_slice import payload_bytes, read_scales, turn_back
from encode_slice import (
    choose_scale,
    codes_of,
    encode_coded,
    largest_of,
    top_bf16,
    transformed,
)
from float_rounding import LARGEST_BITS, bits_of, float32, float_of, round_to
from format_table import Format, Spec
from learned_clip import Clips

TILE = 3072
TILES_PER_MEASURED = 4
LANES = 16
PULL_LANES = 8
STEPS = 256


def scale_of(format: Format, dtype: str, clip: float) -> float:
    """s of the document."""
    return min(float32(clip / format.largest), top_bf16(format, dtype))


def squared_error(xs: list[float], ys: list[float]) -> float:
    """Of one block, in sixteen sums; 0 where it is not finite."""
    sums = [0.0] * LANES
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        off = float32(x - y)
        sums[i % LANES] += off * off
    for half in (8, 4, 2, 1):
        sums = [sums[j] + sums[j + half] for j in range(half)]
    return sums[0] if math.isfinite(sums[0]) else 0.0


def levels_under(format: Format, values: list[float], scale: float) -> list[float]:
    """What values come back as."""
    top = float32(format.largest * scale)
    within = [math.copysign(top, x) if abs(x) > top else x for x in values]
    return [float32(format.levels[code] * scale) for code in codes_of(format, within, scale, None)]


def measured_tile(spec: Spec, dtype: str, tile: list[float], scale: float) -> list[float]:
    """Pull, error under the clip and error under scales of blocks, in squared steps."""
    format = format_of(spec)
    padded = tile + [0.0] * (-len(tile) % spec.block)
    clipped, blocks = 0.0, 0.0
    back: list[float] = []
    for places in block_ranges(spec, len(padded)):
        block = [padded[i] for i in places]
        of_block = choose_scale(format, dtype, block, 0.0)[1]
        blocks += squared_error(block, levels_under(format, block, of_block))
        coded = levels_under(format, block, scale)
        clipped += squared_error(block, coded)
        back += coded
    lanes = [0.0] * PULL_LANES
    for i, (x, y) in enumerate(zip(padded, back, strict=True)):
        lanes[i % PULL_LANES] += (x - y) * y
    total = 0.0
    for lane in lanes:
        total += lane
    step = scale * scale
    return [total / step, clipped / step, blocks / step]


def fixed(total: float) -> int:
    """As it travels."""
    if not math.isfinite(total):
        return -clip_report.SUM_MAX if total < 0 else clip_report.SUM_MAX
    return clip_report.limited(round(total * STEPS))


def measure(spec: Spec, dtype: str, coded: list[float], lost: bool, clip: float) -> Part:
    """Of one coding; ``coded``: the values as they are coded, ``lost``: a block turns back into
    nothing finite."""
    if lost or not all(abs(x) <= largest_of(dtype) for x in coded):
        return Part(1, NAN_BITS)
    sums = [0.0] * 3
    scale = scale_of(format_of(spec), dtype, clip)
    if scale > 0:
        for begin in range(0, len(coded), TILE * TILES_PER_MEASURED):
            found = measured_tile(spec, dtype, coded[begin : begin + TILE], scale)
            sums = [a + b for a, b in zip(sums, found, strict=True)]
    absmax = max(abs(x) for x in coded)
    return Part(1, bits_of(absmax), *map(fixed, sums))


def encode_held(format: Format, coded: list[float], known: bool, scale: float) -> bytes:
    """Scale and codes of a held call; ``known``: all values are finite."""
    if not known:
        return struct.pack("<I", NAN_BITS) + pack_codes(format, [format.zero_code] * len(coded))
    top = float32(format.largest * scale)
    within = [math.copysign(top, x) if abs(x) > top else x for x in coded]
    return struct.pack("<f", scale) + pack_codes(format, codes_of(format, within, scale, None))


def encode_y(
    spec: Spec, dtype: str, coded: list[float], lost: list[bool], held: bool, clip: float
) -> tuple[bytes, Part]:
    """A slice of values as they are coded, without its report; and what was measured."""
    part = measure(spec, dtype, coded, any(lost), clip)
    format = format_of(spec)
    if not held:
        return encode_coded(spec, format, dtype, coded, lost, 0, 0), part
    known = part.absmax_bits != NAN_BITS
    return encode_held(format, coded, known, scale_of(format, dtype, clip)), part


def encode_contribution(
    spec: Spec, dtype: str, values: list[float], held: bool, clips: Clips, first: int = 0
) -> bytes:
    """What a rank sends of its own values."""
    if not values:
        return b""
    coded, lost = transformed(spec, dtype, values, first)
    wire, part = encode_y(spec, dtype, coded, lost, held, clips.contribution)
    return wire + Report(part).pack()


def held_bytes(spec: Spec, count: int) -> int:
    """Of a slice in the held layout."""
    return 4 + code_bytes(format_of(spec), count) + REPORT_BYTES if count > 0 else 0


def decode_y(spec: Spec, count: int, payload: bytes, held: bool) -> list[float]:
    """The values as they were coded."""
    format = format_of(spec)
    body = payload[: len(payload) - REPORT_BYTES]
    codes = unpack_codes(format, body[len(body) - code_bytes(format, count) :], count)
    if held:
        scale = struct.unpack("<f", body[:4])[0]
        good = math.isfinite(scale) and math.copysign(1, scale) > 0
        scales = [scale if good else math.nan] * ceil_div(count, spec.block)
    else:
        scales = read_scales(spec, format, body, ceil_div(count, spec.block))
    levels = [format.levels[code] for code in codes if code is not None]
    return [float32(level * scales[i // spec.block]) for i, level in enumerate(levels)]


def decode(
    spec: Spec, dtype: str, count: int, payload: bytes, held: bool, first: int = 0
) -> list[float]:
    """The values of a slice. ValueError if the payload has another size."""
    expected = held_bytes(spec, count) if held else payload_bytes(spec, dtype, count)
    if len(payload) != expected:
        raise ValueError(f"{expected} bytes, not {len(payload)}")
    if count == 0:
        return []
    values = decode_y(spec, count, payload, held)
    if spec.transforms:
        values = turn_back(spec, dtype, values, first)
    return [round_to(dtype, value) for value in values]


def added(terms: list[list[float]]) -> list[float]:
    """In their order."""
    sums = terms[0]
    for term in terms[1:]:
        sums = [float32(a + b) for a, b in zip(sums, term, strict=True)]
    return sums


def sum_payload(
    spec: Spec,
    dtype: str,
    payloads: list[bytes],
    own: list[float],
    index: int,
    held: bool,
    clips: Clips,
    divisor: int = 1,
    is_final: bool = False,
) -> bytes:
    """The payloads and, as number ``index``, a rank's own values, divided and coded again: all that
    there are, or those of some ranks on their way."""
    terms = [decode_y(spec, len(own), payload, held) for payload in payloads]
    terms.insert(index, transformed(spec, dtype, own, 0)[0])
    coded = [float32(total / divisor) for total in added(terms)]
    first = clip_report.added_wires(payloads, own=True)
    lost = [lost_block(spec, dtype, coded, places) for places in block_ranges(spec, len(coded))]
    clip = clips.sum if is_final else clips.of_partial(first.terms)
    wire, part = encode_y(spec, dtype, coded, lost, held, clip)
    return wire + Report(first, part if is_final else Part()).pack()


def lost_block(spec: Spec, dtype: str, coded: list[float], places: range) -> bool:
    """Does a block of a sum turn back into what has no finite value?"""
    whole = len(places) == spec.block and spec.hadamard
    return whole and block_rotation.overflows([coded[i] for i in places], dtype)


def why_refused(spec: Spec, dtype: str, count: int, payload: bytes) -> str | None:
    """Of the held layout: "bytes:N", "slice", "value:K", "report:contributions", "report:sums"."""
    expected = held_bytes(spec, count)
    if len(payload) != expected:
        return f"bytes:{expected}"
    if count == 0:
        return None
    format = format_of(spec)
    bits = struct.unpack("<I", payload[:4])[0]
    if bits >= 0x7F800000 and bits != NAN_BITS:
        return "slice"
    scale = float_of(bits)
    largest = float_of(LARGEST_BITS[dtype])
    codes = unpack_codes(format, payload[4 : len(payload) - REPORT_BYTES], count)
    for index, code in enumerate(codes):
        assert code is not None
        level = format.levels[code]
        if level < -format.largest or abs(float32(level * scale)) > largest:
            return f"value:{index}"
    return clip_report.why_refused(payload)


def plain_sum(
    spec: Spec, dtype: str, count: int, payloads: list[bytes], held: bool, divisor: int
) -> list[float]:
    """What the contributions of all ranks come to where the sum is not coded again."""
    sums = added([decode_y(spec, count, payload, held) for payload in payloads])
    if spec.hadamard:
        blocks = [[sums[i] for i in places] for places in block_ranges(spec, count)]
        turned = [block_rotation.back(b) if len(b) == spec.block else b for b in blocks]
        sums = [x for block in turned for x in block]
    return [round_to(dtype, float32(x / divisor)) for x in sums]
