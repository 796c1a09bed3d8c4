"""Checks the reference decoder and encoder against the golden payloads, and what it refuses against
the payloads that must fail. Standard library only.
"""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import shared_scales
from channel_factors import factors_of
from check_clips import check_clip, check_refused_clip, check_states
from decode_slice import Number, decode
from encode_slice import encode
from format_table import parse_spec
from refuse_slice import why_refused

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "codec"


def read_hex(text: str) -> bytes:
    """Bytes of one field."""
    return b"" if text == "-" else bytes.fromhex(text)


def same(a: Number, b: Number) -> bool:
    """Equal values, zeros told apart; every NaN equals every other."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return a == b


def check_case(line: str) -> list[str]:
    """What is wrong with one case."""
    name, spec, dtype, count_text, values_hex, payload_hex, decoded_hex = line.split()
    count = int(count_text)
    payload = read_hex(payload_hex)
    where = f"{name} {spec} {dtype}"
    wrong = []
    expected = decode("exact", dtype, count, read_hex(decoded_hex))
    got = decode(spec, dtype, count, payload)
    if not all(same(a, b) for a, b in zip(got, expected, strict=True)):
        wrong.append(f"{where}: decodes to {got}, not {expected}")
    values = [float(x) for x in decode("exact", dtype, count, read_hex(values_hex))]
    if spec != "exact" and encode(spec, dtype, values) != payload:
        wrong.append(f"{where}: the reference encoder gives other bytes")
    if where_refused := why_refused(spec, dtype, count, payload):
        wrong.append(f"{where}: is refused, at {where_refused}")
    for cut in (payload + b"\0", payload[:-1]):
        if cut == payload:
            continue
        try:
            decode(spec, dtype, count, cut)
            wrong.append(f"{where}: a payload of {len(cut)} bytes was accepted")
        except (ValueError, struct.error):
            pass
    return wrong


def check_flattened(line: str) -> list[str]:
    """The same of a payload of +flatten under a state."""
    name, spec, dtype, count, first, state, *fields = line.split()
    values_hex, payload_hex, decoded_hex = fields
    payload, factors = read_hex(payload_hex), factors_of(read_hex(state))
    wrong = []
    got = decode(spec, dtype, int(count), payload, int(first), factors)
    expected = decode("exact", dtype, int(count), read_hex(decoded_hex))
    if not all(same(a, b) for a, b in zip(got, expected, strict=True)):
        wrong.append(f"{name} {spec} {dtype}: decodes to {got}, not {expected}")
    values = [float(x) for x in decode("exact", dtype, int(count), read_hex(values_hex))]
    if encode(spec, dtype, values, first=int(first), factors=factors) != payload:
        wrong.append(f"{name} {spec} {dtype}: the reference encoder gives other bytes")
    if where_refused := why_refused(spec, dtype, int(count), payload):
        wrong.append(f"{name} {spec} {dtype}: is refused, at {where_refused}")
    return wrong


def check_refused(line: str) -> list[str]:
    """The same of a payload that must fail."""
    name, spec, dtype, count, payload, expected = line.split()
    got = why_refused(spec, dtype, int(count), read_hex(payload))
    return [] if got == expected else [f"{name} {spec} {dtype}: refused at {got}, not {expected}"]


def check_sum(line: str) -> list[str]:
    """What is wrong with a sum under shared scales."""
    name, text, dtype, ranks_text, count_text, key, *fields = line.split()
    values, scales_hex, parts, payload, *decoded = (read_hex(field) for field in fields)
    spec, ranks, count = parse_spec(text), int(ranks_text), int(count_text)
    flat = [float(x) for x in decode("exact", dtype, ranks * count, values)]
    rows = [flat[begin : begin + count] for begin in range(0, ranks * count, count)]
    scales = shared_scales.scale_bits(spec, dtype, rows)
    wrong = []
    if struct.pack(f"<{len(scales)}H", *scales) != scales_hex:
        wrong.append(f"{name} {text} {dtype}: the reference finds other scales")
    codes = [
        shared_scales.codes(spec, ranks, row, scales, int(key) + r) for r, row in enumerate(rows)
    ]
    if b"".join(shared_scales.pack_contribution(spec, row) for row in codes) != parts:
        wrong.append(f"{name} {text} {dtype}: the reference gives other contributions")
    sums = shared_scales.unpack_sum(spec, ranks, payload, count)
    if sums != shared_scales.add(spec, codes, int(key)):
        wrong.append(f"{name} {text} {dtype}: the codes have another sum")
    for divisor, array in zip((1, ranks), decoded, strict=True):
        expected = decode("exact", dtype, count, array)
        got = shared_scales.values_of(spec, dtype, ranks, sums, scales, divisor)
        if not all(same(a, b) for a, b in zip(got, expected, strict=True)):
            wrong.append(f"{name} {text} {dtype}: the sum over {divisor} is {got}")
    for cut in (payload + b"\0", payload[:-1]):
        try:
            shared_scales.unpack_sum(spec, ranks, cut, count)
            wrong.append(f"{name} {text} {dtype}: a sum of {len(cut)} bytes was accepted")
        except ValueError:
            pass
    return wrong


def main() -> int:
    """Exit status 1 if any case fails."""
    good = (GOLDEN / "payloads.txt").read_text().splitlines()
    bad = (GOLDEN / "refused.txt").read_text().splitlines()
    wrong = [problem for line in good for problem in check_case(line)]
    wrong += [problem for line in bad for problem in check_refused(line)]
    sums = (GOLDEN / "sums.txt").read_text().splitlines()
    wrong += [problem for line in sums for problem in check_sum(line)]
    flattened = (GOLDEN / "flattened.txt").read_text().splitlines()
    wrong += [problem for line in flattened for problem in check_flattened(line)]
    calls, lost, states = (
        (GOLDEN / f"{name}.txt").read_text().splitlines()
        for name in ("clips", "refused_clips", "clip_states")
    )
    wrong += [problem for line in calls for problem in check_clip(line)]
    wrong += [problem for line in lost for problem in check_refused_clip(line)]
    wrong += check_states(states)
    bad += lost
    payloads = len(good) + len(flattened)
    counts = f"{payloads} golden payloads, {len(bad)} refused ones, {len(sums)} sums"
    print("\n".join(wrong) if wrong else f"{counts}, {len(calls)} calls with learned clips")
    return 1 if wrong or not all((good, flattened, bad, sums, calls, lost, states)) else 0


if __name__ == "__main__":
    sys.exit(main())
