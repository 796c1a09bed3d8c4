"""Sections whose blocks differ: docs/codecs.md, "The modifier +mixed" and "The modifier +adaptive".

No code of tersum's. What stands here is where the blocks are and what they are coded with; a block
is then a slice of its own: of +mixed as it lies there, of +adaptive its scale before its codes.
"""

from __future__ import annotations

import heapq
import itertools
import math
import struct
from dataclasses import replace

from code_packing import ceil_div, code_bytes
from format_table import Format, Spec, integer
from relative_scales import pattern_of

SECTION = 65536
CELL = 32
WIDEST = 1024
#: By what the map of +mixed says of a block: bits that it has more.
CHANGES = {0: 0, 1: 1, 2: -1}

#: A block: what it is coded with, its values in the section, its bytes as a slice of its own.
Piece = tuple[Spec, range, bytes]


def layout_sections(count: int) -> list[range]:
    """The values of a slice, section by section."""
    return [range(begin, min(begin + SECTION, count)) for begin in range(0, count, SECTION)]


def format_of(spec: Spec) -> Format:
    """The format with blocks that these modifiers need."""
    assert spec.format is not None
    return spec.format


def plain_bytes(spec: Spec, count: int) -> int:
    """Of a slice of ``count`` values without these modifiers."""
    format = format_of(spec)
    of_slice = 4 if format.scale == "e4m3" and count > 0 else 0
    return of_slice + ceil_div(count, spec.block) * format.scale_bytes + code_bytes(format, count)


def changed(spec: Spec, change: int) -> Spec:
    """The spec of a block of +mixed."""
    bits = format_of(spec).bits + CHANGES[change]
    return replace(spec, mixed=False, format=integer(bits))


def block_ranges(spec: Spec, count: int) -> list[range]:
    """Of blocks of equal size."""
    return [range(i, min(i + spec.block, count)) for i in range(0, count, spec.block)]


def widest_at(begin: int, count: int) -> int:
    """The largest block that may begin there."""
    size = WIDEST
    while size > CELL and (begin % size or begin + size > count):
        size //= 2
    return size


def cut_count(spec: Spec, count: int) -> int:
    """L of the document."""
    least, begin = 0, 0
    while begin < count:
        begin += widest_at(begin, count)
        least += 1
    affordable = (18 * ceil_div(count, spec.block) - 8 * ceil_div(count, WIDEST)) // 10
    return min(max(affordable, least), ceil_div(count, CELL))


def adaptive_parts(spec: Spec, count: int) -> tuple[range, range, range, range]:
    """Where the exponents, cuts, steps and codes of a section are."""
    cuts = cut_count(spec, count)
    sizes = [ceil_div(count, WIDEST), ceil_div(2 * cuts, 8), cuts]
    ends = list(itertools.accumulate([*sizes, code_bytes(format_of(spec), count)], initial=0))
    first, second, third, fourth = itertools.starmap(range, itertools.pairwise(ends))
    return first, second, third, fourth


def layout_bytes(spec: Spec, count: int) -> int:
    """Of a section of ``count`` values."""
    if spec.mixed:
        same = changed(spec, 0)
        blocks = block_ranges(spec, count)
        return ceil_div(len(blocks), 4) + sum(plain_bytes(same, len(block)) for block in blocks)
    return adaptive_parts(spec, count)[-1].stop


def read_map(spec: Spec, count: int, payload: bytes) -> list[tuple[Spec, range]] | None:
    """The blocks of +mixed; None for a map that no encoder writes."""
    blocks = block_ranges(spec, count)
    changes = [payload[i // 4] >> (2 * (i % 4)) & 3 for i in range(len(blocks))]
    short = len(blocks[-1]) < spec.block
    if 3 in changes or changes.count(1) != changes.count(2) or (short and changes[-1]):
        return None
    return [(changed(spec, change), block) for change, block in zip(changes, blocks, strict=True)]


def read_cuts(spec: Spec, count: int, payload: bytes) -> list[tuple[Spec, range]] | None:
    """The blocks of +adaptive; None for cuts that no encoder writes."""
    cuts = cut_count(spec, count)
    part = adaptive_parts(spec, count)[1]
    data = payload[part.start : part.stop]
    bits = iter([data[i // 8] >> (i % 8) & 1 for i in range(2 * cuts)])
    blocks: list[tuple[Spec, range]] = []
    begin = 0
    while begin < count:
        size = widest_at(begin, count)
        while size > CELL:
            bit = next(bits, None)
            if bit is None:
                return None
            if bit == 0:
                break
            size //= 2
        values = range(begin, min(begin + size, count))
        blocks.append((replace(spec, adaptive=False, block=size), values))
        begin = values.stop
    return blocks if len(blocks) == cuts else None


def mixed_pieces(spec: Spec, count: int, payload: bytes) -> list[Piece] | None:
    """The blocks of a section of +mixed."""
    blocks = read_map(spec, count, payload)
    if blocks is None:
        return None
    at = ceil_div(ceil_div(count, spec.block), 4)
    found: list[Piece] = []
    for block, values in blocks:
        size = plain_bytes(block, len(values))
        found.append((block, values, payload[at : at + size]))
        at += size
    return found


def adaptive_pieces(spec: Spec, count: int, payload: bytes) -> list[Piece] | None:
    """The blocks of a section of +adaptive."""
    blocks = read_cuts(spec, count, payload)
    if blocks is None:
        return None
    exponents, _, steps, codes = adaptive_parts(spec, count)
    format = format_of(spec)
    found: list[Piece] = []
    for at, (block, values) in zip(steps, blocks, strict=True):
        exponent = payload[exponents[values[0] // WIDEST]]
        scale = struct.pack("<H", pattern_of(exponent, payload[at]))
        begin = codes.start + code_bytes(format, values.start)
        size = code_bytes(format, len(values))
        found.append((block, values, scale + payload[begin : begin + size]))
    return found


def pieces(spec: Spec, count: int, payload: bytes) -> list[Piece] | None:
    """The blocks of a section; None where its map or cuts are none."""
    find = mixed_pieces if spec.mixed else adaptive_pieces
    return find(spec, count, payload)


def pack_bits(numbers: list[int], bits: int) -> bytes:
    """Numbers of 1 or 2 bits each, the first in the lowest bits."""
    whole = sum(number << (bits * i) for i, number in enumerate(numbers))
    return whole.to_bytes(ceil_div(bits * len(numbers), 8), "little")


def choose_map(errors: list[list[float]]) -> list[int]:
    """What the map says of each whole block, from its squared errors with the bits of the spec, one
    more, one less."""
    numbers = range(len(errors))
    by_gain = sorted(numbers, key=lambda i: (errors[i][1] - errors[i][0], i))
    by_cost = sorted(numbers, key=lambda i: (errors[i][2] - errors[i][0], i))
    changes = [0] * len(errors)
    for more in by_gain:
        if changes[more]:
            continue
        less = next((i for i in by_cost if not changes[i] and i != more), None)
        if less is None:
            break
        if not errors[more][0] - errors[more][1] > errors[less][2] - errors[less][0]:
            break
        changes[more], changes[less] = 1, 2
    return changes


def merge_cost(a: float, b: float, size: int) -> float:
    """What joining two blocks adds to the sum of size * absmax^2, in units of a cell."""
    most, least = max(a, b), min(a, b)
    return 0.0 if most == least else size // CELL * (most * most - least * least)


def choose_cuts(spec: Spec, values: list[float]) -> list[int]:
    """The sizes of the blocks; the last may be longer than what is left."""
    count = len(values)
    absmax = {}
    for begin in range(0, count, CELL):
        cell = values[begin : begin + CELL]
        known = all(math.isfinite(x) for x in cell)
        absmax[begin] = max(abs(x) for x in cell) if known else math.inf
    size = dict.fromkeys(absmax, CELL)
    heap: list[tuple[float, int]] = []

    def offer(begin: int) -> None:
        half = size[begin]
        first = begin - begin % (2 * half)
        second = first + half
        if 2 * half > WIDEST or second + half > count:
            return
        if size.get(first) == half and size.get(second) == half:
            heapq.heappush(heap, (merge_cost(absmax[first], absmax[second], half), first))

    for begin in range(0, count, 2 * CELL):
        offer(begin)
    while len(size) > cut_count(spec, count):
        _, first = heapq.heappop(heap)
        second = first + size[first]
        absmax[first] = max(absmax[first], absmax.pop(second))
        size[first] += size.pop(second)
        offer(first)
    return [size[begin] for begin in sorted(size)]


def cut_bits(spec: Spec, count: int, sizes: list[int]) -> bytes:
    """The cuts of a section."""
    bits: list[int] = []
    begin = 0
    for wanted in sizes:
        size = widest_at(begin, count)
        while size > CELL:
            bits.append(int(size > wanted))
            if size == wanted:
                break
            size //= 2
        begin += wanted
    return pack_bits(bits + [0] * (2 * cut_count(spec, count) - len(bits)), 1)
