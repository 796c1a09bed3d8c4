"""Checks the reference decoder and encoder against the golden payloads, and what it refuses against
the payloads that must fail. Standard library only.
"""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from decode_slice import Number, decode
from encode_slice import encode
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


def check_refused(line: str) -> list[str]:
    """The same of a payload that must fail."""
    name, spec, dtype, count, payload, expected = line.split()
    got = why_refused(spec, dtype, int(count), read_hex(payload))
    return [] if got == expected else [f"{name} {spec} {dtype}: refused at {got}, not {expected}"]


def main() -> int:
    """Exit status 1 if any case fails."""
    good = (GOLDEN / "payloads.txt").read_text().splitlines()
    bad = (GOLDEN / "refused.txt").read_text().splitlines()
    wrong = [problem for line in good for problem in check_case(line)]
    wrong += [problem for line in bad for problem in check_refused(line)]
    print("\n".join(wrong) if wrong else f"{len(good)} golden payloads, {len(bad)} refused ones")
    return 1 if wrong or not good or not bad else 0


if __name__ == "__main__":
    sys.exit(main())
