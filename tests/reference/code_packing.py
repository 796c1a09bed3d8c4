"""Codes from and to their places on the wire: docs/codecs.md, "Payload layout"."""

from __future__ import annotations

from format_table import Format

GROUP = {"bytes": 1, "nibbles": 32, "planes": 32, "triples": 96}
TRIPLE_BITS = 7
#: Numbers of a triple from here on stand for no codes.
TRIPLES = 125


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def group_bytes(format: Format, count: int) -> int:
    """Bytes of one group of ``count`` values."""
    if format.packing == "bytes":
        return count
    if format.packing == "nibbles":
        return ceil_div(count, 2)
    if format.packing == "planes":
        return format.bits * ceil_div(count, 8)
    return TRIPLE_BITS * ceil_div(ceil_div(count, 3), 8)


def group_sizes(format: Format, count: int) -> list[int]:
    """How many values each group of a slice has."""
    size = GROUP[format.packing]
    return [min(size, count - begin) for begin in range(0, count, size)]


def code_bytes(format: Format, count: int) -> int:
    """Bytes of the codes of a slice."""
    return sum(group_bytes(format, size) for size in group_sizes(format, count))


def pack_planes(codes: list[int], bits: int) -> bytes:
    """For each bit, lowest first, that bit of all codes."""
    out = bytearray()
    for bit in range(bits):
        for begin in range(0, len(codes), 8):
            part = codes[begin : begin + 8]
            out.append(sum((code >> bit & 1) << place for place, code in enumerate(part)))
    return bytes(out)


def unpack_planes(data: bytes, count: int, bits: int) -> list[int]:
    """What pack_planes wrote."""
    plane = ceil_div(count, 8)
    return [
        sum((data[bit * plane + i // 8] >> (i % 8) & 1) << bit for bit in range(bits))
        for i in range(count)
    ]


def pack_group(format: Format, codes: list[int]) -> bytes:
    """One group."""
    if format.packing == "bytes":
        return bytes(codes)
    if format.packing == "nibbles":
        half = ceil_div(len(codes), 2)
        high = codes[half:] + [0] * (2 * half - len(codes))
        return bytes(low | up << 4 for low, up in zip(codes[:half], high, strict=True))
    if format.packing == "planes":
        return pack_planes(codes, format.bits)
    third = ceil_div(len(codes), 3)
    padded = codes + [format.zero_code] * (3 * third - len(codes))
    numbers = [padded[i] + 5 * padded[third + i] + 25 * padded[2 * third + i] for i in range(third)]
    return pack_planes(numbers, TRIPLE_BITS)


def unpack_group(format: Format, data: bytes, count: int) -> list[int | None]:
    """One group; None for a code that stands for nothing."""
    if format.packing == "bytes":
        return list(data)
    if format.packing == "nibbles":
        return [*(byte & 15 for byte in data), *(byte >> 4 for byte in data)][:count]
    if format.packing == "planes":
        return [*unpack_planes(data, count, format.bits)]
    numbers = unpack_planes(data, ceil_div(count, 3), TRIPLE_BITS)
    codes: list[int | None] = []
    for place in (1, 5, 25):
        codes += [number // place % 5 if number < TRIPLES else None for number in numbers]
    return codes[:count]


def pack_codes(format: Format, codes: list[int]) -> bytes:
    """All codes of a slice."""
    out = b""
    begin = 0
    for size in group_sizes(format, len(codes)):
        out += pack_group(format, codes[begin : begin + size])
        begin += size
    return out


def unpack_codes(format: Format, data: bytes, count: int) -> list[int | None]:
    """All codes of a slice."""
    codes: list[int | None] = []
    begin = 0
    for size in group_sizes(format, count):
        length = group_bytes(format, size)
        codes += unpack_group(format, data[begin : begin + length], size)
        begin += length
    return codes
