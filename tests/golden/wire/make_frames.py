"""Writes frames.txt: frames that must be read, with their fields, and frames that must be refused.

What tersum writes is the same bytes for the same fields (golden_frames_test.cc and
call_descriptor_test.cc), and the reader in tests/reference reads them back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "reference"))

from read_frames import DESCRIPTOR, HANDSHAKE, HEADER, MAGIC, OPEN_ARRAYS

HEAD = """\
# Written by make_frames.py. A line: what it is, a name, its fields, its bytes; or "refused", what
# it would be, what is wrong with it, and its bytes.
"""
FILE = Path(__file__).resolve().parent / "frames.txt"
GROUP = 0x1122334455667788
TOKEN = "000102030405060708090a0b0c0d0e0f"
Fields = dict[str, int | str]

MESSAGES: dict[str, Fields] = {
    "worked": {"kind": 2, "phase": 1, "from_rank": 2, "group": GROUP, "call": 7, "chunk": 2}
    | {"slice": 5, "payload_bytes": 4160},
    "ready": {"kind": 1, "to_rank": 3, "group": GROUP, "payload_bytes": 128},
    "scales": {"kind": 2, "phase": 2, "from_rank": 1, "group": GROUP, "payload_bytes": 64},
    "routed": {"kind": 2, "phase": 3, "via": 4, "from_rank": 65535, "to_rank": 258, "group": 1},
    "credit": {"kind": 3, "to_rank": 1, "group": GROUP, "call": 1 << 40, "slice": 4294967295},
    "cancel_of_group": {"kind": 4, "group": GROUP, "call": (1 << 64) - 1, "payload_bytes": 8},
    "ping": {"kind": 5},
    "pong": {"kind": 6},
    "goodbye_of_process": {"kind": 7},
    "placed": {"kind": 8, "from_rank": 1, "group": GROUP, "call": 7, "chunk": 1},
    "largest": {"kind": 2, "payload_bytes": 4 << 20},
}
IDS: Fields = {"attempt": 0x0102030405060708, "from_high": 1, "from_low": 2, "to_high": 3}
IDS |= {"to_low": 1 << 63, "version": 1, "stream_count": 1}
HANDSHAKES: dict[str, Fields] = {
    "worked": IDS
    | {"kind": 1, "stream_index": 1, "stream_count": 4, "group": GROUP, "token": TOKEN},
    "hello_shared": IDS | {"kind": 1, "carrier": 1, "group": GROUP, "token": TOKEN},
    "welcome_shared": IDS
    | {"kind": 2, "carrier": 1, "arena_bytes": 1 << 28, "mailbox_bytes": 69632},
    "reject": IDS | {"kind": 3},
    "confirm_last": IDS | {"kind": 4, "stream_index": 15, "stream_count": 16},
}
DESCRIPTORS: dict[str, Fields] = {
    "worked": {"op": 1, "count": 262144, "codec": "int4/128+flatten", "flatten": GROUP},
    "broadcast": {"collective": 3, "type": 5, "root": 3, "count": 1 << 40, "codec": "exact"},
    "coalesced": {"plan": 8, "count": 1000, "codec": "mxfp8:e4m3/32", "tensors": 3 << 40 | 12345},
    "barrier": {"collective": 4},
    "open": {"count": 4194304, "codec": "exact", "slot": 3, "key": 5, "input": 0x7F0123456000}
    | {"output": 0x7F0123456000},
    "longest": {"collective": 7, "op": 3, "type": 6, "plan": 1, "codec": "x" * 95},
}
#: What is wrong, the byte, and what it is in place of what "worked" has there.
REFUSED = {
    "message": """kind_0 0 0, kind_9 0 9, phase_4 1 4, payload_of_16_mib 35 1,
        payload_of_over_4_mib 34 64, zero_36 36 1, zero_39 39 1""",
    "handshake": """magic 7 0, version_0 8 0, version_257 9 1, kind_0 10 0, kind_5 10 5,
        auth_1 11 1, frame_bytes_129 12 129, carrier_2 14 2, zero_15 15 1, index_is_count 16 4,
        count_0 18 0, count_17 18 17, zero_20 20 1, zero_23 23 1, zero_104 104 1, zero_127 127 1""",
    "descriptor": """collective_8 0 8, op_4 1 4, type_7 2 7, plan_9 3 9, codec_of_96 16 96,
        cut_codec 16 15, behind_the_codec 33 65""",
}
#: The same of "open", of bytes that "worked" does not have.
REFUSED_OPEN = "slot_4 128 4, slot_256 129 1, zero_132 132 1, zero_135 135 1, key_0 136 0"


def number(fields: Fields, name: str) -> int:
    """0 where it is not given."""
    return int(fields.get(name, 0))


def message(fields: Fields) -> bytes:
    names = "kind phase via from_rank to_rank group call chunk slice payload_bytes"
    return HEADER.pack(*(number(fields, name) for name in names.split()), 0)


def handshake(fields: Fields) -> bytes:
    first = [number(fields, name) for name in ("version", "kind")]
    streams = [number(fields, name) for name in ("stream_index", "stream_count")]
    ids = [
        number(fields, name)
        for name in ("attempt", "from_high", "from_low", "to_high", "to_low", "group")
    ]
    token = bytes.fromhex(str(fields.get("token", "00" * 16)))
    sizes = [number(fields, name) for name in ("arena_bytes", "mailbox_bytes")]
    carrier = number(fields, "carrier")
    return HANDSHAKE.pack(
        MAGIC, *first, 0, HANDSHAKE.size, carrier, 0, *streams, 0, *ids, token, *sizes, bytes(24)
    )


def descriptor(fields: Fields) -> bytes:
    numbers = [number(fields, name) for name in ("collective", "op", "type", "plan", "root")]
    codec = str(fields.get("codec", "")).encode()
    ends = [number(fields, name) for name in ("flatten", "tensors")]
    packed = DESCRIPTOR.pack(*numbers, number(fields, "count"), len(codec), codec, *ends)
    if "key" not in fields:
        return packed
    where = [number(fields, name) for name in ("key", "input", "output")]
    return packed + OPEN_ARRAYS.pack(number(fields, "slot"), 0, *where)


def spoilt(frame: bytes, cases: str) -> Iterator[tuple[str, bytes]]:
    """What is wrong, and the frame with that one byte."""
    for case in cases.split(","):
        why, at, value = case.split()
        bad = bytearray(frame)
        bad[int(at)] = int(value)
        yield why, bytes(bad)


def lines() -> Iterator[str]:
    """Of the file."""
    kinds = (("message", MESSAGES, message), ("handshake", HANDSHAKES, handshake))
    for what, frames, pack in (*kinds, ("descriptor", DESCRIPTORS, descriptor)):
        for name, fields in frames.items():
            words = [f"{key}={value}" for key, value in fields.items() if value != ""]
            yield " ".join([what, name, *words, pack(fields).hex()])
        for why, bad in spoilt(pack(frames["worked"]), REFUSED[what]):
            yield f"refused {what} {why} {bad.hex()}"
    for why, bad in spoilt(descriptor(DESCRIPTORS["open"]), REFUSED_OPEN):
        yield f"refused descriptor {why} {bad.hex()}"


if __name__ == "__main__":
    FILE.write_text(HEAD + "".join(f"{line}\n" for line in lines()))
