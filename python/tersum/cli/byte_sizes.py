"""Sizes as people write them: ``64K`` is 65,536 bytes."""

from __future__ import annotations

import re

#: Beyond what any array has, and exact as a float.
_MOST = 1 << 53
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_bytes(text: str) -> int:
    """Bytes of ``"64K"``, ``"64KiB"``, ``"1M"``, ``"1000"``; ValueError otherwise."""
    match = re.fullmatch(r"(\d+)([KMG]?)(?:I?B)?", text.strip().upper())
    if match is None:
        raise ValueError(f"bad size {text!r}: give bytes, with K, M or G for powers of 1024")
    size = int(match[1]) * _FACTORS[match[2]]
    if size > _MOST:
        raise ValueError(f"bad size {text!r}: at most 8 PiB, which are {_MOST >> 30}G")
    return size


def format_bytes(count: float) -> str:
    """``65536`` as ``"64 KiB"``: whole where it is whole, three digits otherwise."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.4g} B"


def size_range(smallest: int, largest: int, factor: float) -> list[int]:
    """``smallest``, times ``factor`` and so on, up to and at most ``largest``."""
    sizes = []
    size = float(smallest)
    while round(size) <= largest:
        sizes.append(round(size))
        size *= factor
    return sizes
