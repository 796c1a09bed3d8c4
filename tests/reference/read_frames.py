"""The frames of a link and of a call, read as docs/wire-format.md describes them: the handshake,
the header of a message, and the descriptor of a call.

Plain Python, written from that page alone; no code of tersum's. What the page does not allow is a
ValueError that names the field.
"""

from __future__ import annotations

import struct
from typing import Any

Fields = dict[str, Any]
WIRE_VERSION = 1
MAGIC = b"TERSUM\r\n"
STREAMS_MAX = 16
PAYLOAD_BYTES_MAX = 4 << 20
CODEC_BYTES_MAX = 95

#: "z…" are zero fields.
HEADER = struct.Struct("<BBHHHQQIIII")
HEADER_FIELDS = "kind phase via from_rank to_rank group call chunk slice payload_bytes z36"
HANDSHAKE = struct.Struct("<8sHBBHBBHHIQQQQQQ16sQQ24s")
HANDSHAKE_FIELDS = (
    "magic version kind auth frame_bytes carrier z15 stream_index stream_count z20 attempt"
    " from_high from_low to_high to_low group token arena_bytes mailbox_bytes z104"
)
DESCRIPTOR = struct.Struct("<BBBBIQB95sQQ")
DESCRIPTOR_FIELDS = "collective op type plan root count codec_bytes codec flatten tensors"
OPEN_ARRAYS = struct.Struct("<IIQQQ")
OPEN_ARRAYS_FIELDS = "slot z132 key input output"
GRANTS_MAX = 4


def unpack(layout: struct.Struct, names: str, data: bytes) -> Fields:
    """The fields, of which zero ones are gone, as they must be."""
    if len(data) != layout.size:
        raise ValueError(f"{len(data)} bytes, not {layout.size}")
    fields = dict(zip(names.split(), layout.unpack(data), strict=True))
    for name in [name for name in fields if name.startswith("z")]:
        value = fields.pop(name)
        if any(value) if isinstance(value, bytes) else value:
            raise ValueError(f"byte {name[1:]} is not zero")
    return fields


def check(fields: Fields, name: str, least: int, most: int) -> None:
    """A field within its numbers."""
    if not least <= fields[name] <= most:
        raise ValueError(f"{name} {fields[name]}")


def read_message(data: bytes) -> Fields:
    """Section 3: a header of 40 bytes."""
    fields = unpack(HEADER, HEADER_FIELDS, data)
    check(fields, "kind", 1, 8)
    check(fields, "phase", 0, 3)
    check(fields, "payload_bytes", 0, PAYLOAD_BYTES_MAX)
    return fields


def read_handshake(data: bytes) -> Fields:
    """Section 2: a frame of 128 bytes."""
    fields = unpack(HANDSHAKE, HANDSHAKE_FIELDS, data)
    if fields.pop("magic") != MAGIC:
        raise ValueError("magic")
    check(fields, "version", WIRE_VERSION, WIRE_VERSION)
    check(fields, "kind", 1, 4)
    check(fields, "auth", 0, 0)
    check(fields, "frame_bytes", HANDSHAKE.size, HANDSHAKE.size)
    check(fields, "carrier", 0, 1)
    check(fields, "stream_count", 1, 1 if fields["carrier"] else STREAMS_MAX)
    check(fields, "stream_index", 0, fields["stream_count"] - 1)
    fields["token"] = fields["token"].hex()
    return fields


def read_descriptor(data: bytes) -> Fields:
    """Section "Calls": the payload of *ready*, 128 bytes, or 160 with open arrays."""
    opens = len(data) == DESCRIPTOR.size + OPEN_ARRAYS.size
    fields = unpack(DESCRIPTOR, DESCRIPTOR_FIELDS, data[: DESCRIPTOR.size] if opens else data)
    if opens:
        fields |= unpack(OPEN_ARRAYS, OPEN_ARRAYS_FIELDS, data[DESCRIPTOR.size :])
        check(fields, "slot", 0, GRANTS_MAX - 1)
        check(fields, "key", 1, (1 << 64) - 1)
    for name, most in (("collective", 7), ("op", 3), ("type", 6), ("plan", 8)):
        check(fields, name, 0, most)
    check(fields, "codec_bytes", 0, CODEC_BYTES_MAX)
    used = fields.pop("codec_bytes")
    if any(fields["codec"][used:]):
        raise ValueError("something behind the codec text")
    fields["codec"] = fields["codec"][:used].decode("ascii")
    return fields


READERS = {"message": read_message, "handshake": read_handshake, "descriptor": read_descriptor}
