"""XLA's protobuf descriptors, read from the shared libraries of the installed jaxlib.

No wheel carries ``hlo.proto``, but the generated code carries each file's serialized
``FileDescriptorProto``: it starts with field 1 (the file's name) and is a run of ordinary fields,
so its end is where no such field follows. Only the standard library is needed.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

HLO_FILE = "xla/service/hlo.proto"
DATA_FILE = "xla/xla_data.proto"

_VARINT, _BYTES = 0, 2
# Field numbers of FileDescriptorProto go up to 14 (edition).
_LAST_FILE_FIELD = 14


def _varint(data: bytes | mmap.mmap, at: int) -> tuple[int, int]:
    """The number at `at` and the position after it; raises ValueError where there is none."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("not a varint")


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a message made of varints and length-delimited fields."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif tag & 7 == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("a field runs past the end of its message")
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {tag & 7} does not occur in a descriptor")


def _end_of_message(data: mmap.mmap, at: int) -> int:
    while True:
        start = at
        try:
            tag, at = _varint(data, at)
            number, wire = tag >> 3, tag & 7
            if not 1 <= number <= _LAST_FILE_FIELD or wire not in (_VARINT, _BYTES):
                return start
            size, at = _varint(data, at)
        except (ValueError, IndexError):
            return start
        if wire == _BYTES:
            at += size
        if at > len(data):
            return start


def file_descriptor(name: str, library: Path) -> bytes | None:
    """The serialized FileDescriptorProto of file `name` in `library`, if it is in there."""
    encoded = name.encode()
    needle = b"\x0a" + bytes([len(encoded)]) + encoded
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(needle)
        while at >= 0:
            found = data[at : _end_of_message(data, at)]
            # Other files that import this one hold the same text; a descriptor has messages.
            if any(number == 4 for number, _ in fields(found)):
                return found
            at = data.find(needle, at + 1)
    return None


def jaxlib_libraries() -> list[Path]:
    """The shared libraries of the installed jaxlib, largest first."""
    import jaxlib

    root = Path(next(iter(jaxlib.__path__)))
    found = [path for path in root.rglob("*.so*") if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_size, reverse=True)


def installed_descriptor(name: str) -> bytes:
    """The descriptor of file `name` in the installed jaxlib; raises LookupError without one."""
    for library in jaxlib_libraries():
        found = file_descriptor(name, library)
        if found is not None:
            return found
    raise LookupError(f"no shared library of jaxlib carries the descriptor of {name}")


def message_fields(descriptor: bytes) -> dict[str, dict[str, int]]:
    """Message name (without its parents' names) -> field name -> number, nested ones included."""
    out: dict[str, dict[str, int]] = {}

    def add(message: bytes) -> None:
        name = ""
        numbers: dict[str, int] = {}
        nested: list[bytes] = []
        for number, value in fields(message):
            if number == 1 and isinstance(value, bytes):
                name = value.decode()
            elif number == 2 and isinstance(value, bytes):
                field = dict(fields(value))
                label, field_number = field[1], field[3]
                assert isinstance(label, bytes) and isinstance(field_number, int)
                numbers[label.decode()] = field_number
            elif number == 3 and isinstance(value, bytes):
                nested.append(value)
        out[name] = numbers
        for inner in nested:
            add(inner)

    for number, value in fields(descriptor):
        if number == 4 and isinstance(value, bytes):
            add(value)
    return out
