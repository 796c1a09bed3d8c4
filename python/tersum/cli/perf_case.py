"""One size of a measurement: this rank's arrays, and what each part of the output must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tersum.cli import perf_data
from tersum.cli.command_error import CommandError
from tersum.cli.perf_data import Oracle, Values
from tersum.cli.perf_options import SAME_EVERYWHERE, SHARED_OUT, PerfOptions
from tersum.communicator import Communicator


class Piece(NamedTuple):
    """A part of the output that this rank checks: where it lies, and what it must be."""

    begin: int
    end: int
    oracle: Oracle


class Case(NamedTuple):
    """One size: this rank's arrays and what the output must be."""

    elements: int  # of the whole array
    x: Values
    out: Values
    pieces: Sequence[Piece]


class _Source:
    """Values by the number of their source, of which every rank can make all."""

    def __init__(self, options: PerfOptions, part: int) -> None:
        self._options = options
        self._part = part

    def values(self, source: int, elements: int | None = None) -> Values:
        """What comes from ``source``: a part, or ``elements``."""
        count = self._part if elements is None else elements
        return perf_data.make_values(count, self._options.dtype, self._options.seed, source)

    def parts(self, sources: Sequence[int]) -> Values:
        """A part of each, one behind the other."""
        return np.concatenate([self.values(source) for source in sources])

    def piece(self, place: int, sources: range, elements: int | None = None) -> Piece:
        """Part number ``place`` of the output, which is ``sources`` reduced."""
        count = self._part if elements is None else elements
        options = self._options
        redop = options.redop if options.op in ("all_reduce", "reduce_scatter") else "sum"
        oracle = perf_data.make_oracle(count, options.dtype, options.seed, sources, redop)
        return Piece(place * count, (place + 1) * count, oracle)


def make_case(group: Communicator, options: PerfOptions, size: int) -> Case:
    """The arrays of this rank for a whole array of about ``size`` bytes. They begin where a cache
    line does, as those of PyTorch and JAX do (NumPy's: every 16 bytes)."""
    try:
        case = _make_case(group, options, size)
        return case._replace(x=on_lines(case.x), out=on_lines(case.out))
    except MemoryError as error:
        raise CommandError(f"{error}; pass a smaller --max-bytes") from error


def on_lines(values: Values) -> Values:
    """A copy, or the array itself if a cache line begins where it does."""
    line_bytes = 64
    if values.ctypes.data % line_bytes == 0:
        return values
    memory = np.empty(values.nbytes + line_bytes, np.uint8)
    begin = -memory.ctypes.data % line_bytes
    copy = memory[begin : begin + values.nbytes].view(values.dtype)
    np.copyto(copy, values)
    return copy


def _make_case(group: Communicator, options: PerfOptions, size: int) -> Case:
    op, ranks, rank = options.op, group.size, group.rank
    kind = perf_data.element_type(options.dtype)
    count = max(1, size // kind.itemsize)
    if op in SHARED_OUT:
        count = max(1, count // ranks) * ranks
    part = count // ranks
    source = _Source(options, part)

    # Of what has parts, part p of rank r comes from source r * ranks + p: each has its own oracle.
    if op == "reduce_scatter":
        x = source.parts(range(rank * ranks, (rank + 1) * ranks))
        piece = source.piece(0, range(rank, ranks * ranks, ranks))
        return Case(count, x, np.empty(part, kind), [piece])
    if op == "all_to_all":
        x = source.parts(range(rank * ranks, (rank + 1) * ranks))
        sent = [r * ranks + rank for r in range(ranks)]
        pieces = [source.piece(r, range(sent[r], sent[r] + 1)) for r in range(ranks)]
        return Case(count, x, np.empty(count, kind), pieces)
    if op == "scatter":
        x = source.parts(range(ranks)) if rank == 0 else np.zeros(count, kind)
        return Case(count, x, np.empty(part, kind), [source.piece(0, range(rank, rank + 1))])

    gathers = op in ("all_gather", "gather")
    x = source.values(rank, part if gathers else count)
    out = np.empty(count, kind)
    if rank != 0:  # of ops in SAME_EVERYWHERE one oracle will do, and a gather's result is rank 0's
        return Case(count, x, out, [])
    if gathers:
        return Case(count, x, out, [source.piece(r, range(r, r + 1)) for r in range(ranks)])
    assert op in SAME_EVERYWHERE
    sources = range(ranks) if op == "all_reduce" else range(1)
    return Case(count, x, out, [source.piece(0, sources, count)])
