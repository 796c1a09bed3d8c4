"""Checks the reference of +clip:learned against the golden calls, states and refused payloads."""

from __future__ import annotations

import math
import struct

import clip_report
import clipped_slices
from decode_slice import ITEM_BYTES, decode
from format_table import Spec, parse_spec
from learned_clip import Clips, Site


def read_hex(text: str) -> bytes:
    """Bytes of one field."""
    return b"" if text == "-" else bytes.fromhex(text)


def floats(dtype: str, data: bytes) -> list[float]:
    """The values of an array."""
    return [float(x) for x in decode("exact", dtype, len(data) // ITEM_BYTES[dtype], data)]


def same(a: list[float], b: list[float]) -> bool:
    """Equal values, zeros told apart; every NaN equals every other."""
    bits = [[struct.pack("<d", math.nan if math.isnan(x) else x) for x in row] for row in (a, b)]
    return bits[0] == bits[1]


def cut(data: bytes, parts: int) -> list[bytes]:
    """Into equal parts."""
    size = len(data) // parts
    return [data[i * size : (i + 1) * size] for i in range(parts)]


def accepts_other_lengths(spec: Spec, dtype: str, count: int, payload: bytes, held: bool) -> bool:
    """Is a payload decoded that is too long or too short?"""
    for wrong in (payload + b"\0", payload[:-1]):
        try:
            clipped_slices.decode(spec, dtype, count, wrong, held)
            return wrong != payload
        except ValueError:
            pass
    return False


def check_clip(line: str) -> list[str]:
    """What is wrong with one call."""
    name, text, dtype, layout, ranks, numbers, owner_text, divisor, *fields = line.split()
    clip_bytes, arrays, payloads, partial, total, decoded, plain = map(read_hex, fields)
    spec, size, count, owner = parse_spec(text), int(ranks), int(numbers), int(owner_text)
    held, clips = layout == "held", Clips(*struct.unpack("<2f", clip_bytes), size, int(divisor))
    rows = [floats(dtype, array) for array in cut(arrays, size)]
    parts = cut(payloads, size)
    wrong = []
    coded = [clipped_slices.encode_contribution(spec, dtype, row, held, clips) for row in rows]
    if coded != parts:
        wrong.append("the reference gives other contributions")
    if count == 0:
        return [f"{name} {text} {dtype}: {problem}" for problem in wrong]
    if partial:
        sent = clipped_slices.sum_payload(spec, dtype, parts[:1], rows[1], 1, held, clips)
        wrong += ["another partial sum"] if sent != partial else []
    others = parts[:owner] + parts[owner + 1 :]
    own = rows[owner]
    sent = clipped_slices.sum_payload(
        spec, dtype, others, own, owner, held, clips, int(divisor), is_final=True
    )
    wrong += ["another sum"] if sent != total else []
    got = clipped_slices.decode(spec, dtype, count, total, held)
    wrong += [] if same(got, floats(dtype, decoded)) else [f"the sum decodes to {got}"]
    got = clipped_slices.plain_sum(spec, dtype, count, parts, held, int(divisor))
    wrong += [] if same(got, floats(dtype, plain)) else [f"not coded again it is {got}"]
    wrong += ["another length is taken"] * accepts_other_lengths(spec, dtype, count, total, held)
    for payload in (*parts, total):
        why = clip_report.why_refused(payload)
        why = clipped_slices.why_refused(spec, dtype, count, payload) if held else why
        wrong += [f"a payload is refused at {why}"] if why else []
    return [f"{name} {text} {dtype} {layout}: {problem}" for problem in wrong]


def check_refused_clip(line: str) -> list[str]:
    """The same of a payload of the held layout that must fail."""
    name, text, dtype, count, payload, expected = line.split()
    got = clipped_slices.why_refused(parse_spec(text), dtype, int(count), read_hex(payload))
    return [] if got == expected else [f"{name} {text} {dtype}: refused at {got}, not {expected}"]


def check_states(lines: list[str]) -> list[str]:
    """Of all sites, call by call."""
    wrong, site, last = [], Site(), ""
    for number, line in enumerate(lines):
        name, report, state, held, held_replicated = line.split()
        site = site if name == last else Site()
        last = name
        site.learn(clip_report.unpack(read_hex(report)))
        holds = (str(int(site.is_held(False))), str(int(site.is_held(True))))
        if site.saved() != read_hex(state) or holds != (held, held_replicated):
            wrong.append(f"{name}, line {number + 1}: the reference has another state")
    return wrong
