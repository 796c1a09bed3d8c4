"""``--coalesce`` and ``--in-flight``: one array cut into tensors, reduced in other ways than whole.

Each is measured beside its alternative in the same run: N tensors coalesced beside N calls one
after another, K calls in flight together beside one call of all. Coalesced tensors are measured
twice: as views that follow one another in one array, which are not copied, and ``scattered``, that
is in the opposite order, as tensors with memory of their own are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tersum.cli.perf_contender import Contender, tersum_contenders
from tersum.cli.perf_data import Values
from tersum.cli.perf_options import PerfOptions
from tersum.communicator import Communicator

# Cuts lie at multiples of this, so that no block of a codec is cut.
_GRAIN = 1024

Call = Callable[[], object]
Make = Callable[[list[Values], list[Values]], Call]


def contenders_of(group: Communicator, options: PerfOptions) -> list[Contender]:
    """Every codec with every plan, whole or as the options cut it."""
    whole = tersum_contenders(group, options)
    chosen: list[Contender] = []
    for contender in whole:
        if not options.coalesce:
            chosen.append(contender)
        else:
            parts = options.coalesce
            chosen.append(_cut(contender, parts, f"{parts} calls", _one_by_one(group, contender)))
            for name, backwards in (("coalesced", False), ("scattered", True)):
                coalesced = _coalesced(group, contender, backwards)
                chosen.append(_cut(contender, parts, f"{parts} {name}", coalesced))
        if options.in_flight > 1:
            parts = options.in_flight
            chosen.append(_cut(contender, parts, f"{parts} in flight", _together(group, contender)))
    return chosen


def _cut(contender: Contender, parts: int, name: str, make: Make) -> Contender:
    def prepare(x: Values, out: Values) -> Call:
        return make(_pieces(x, parts), _pieces(out, parts))

    return contender._replace(prepare=prepare, split=name)


def _pieces(array: Values, parts: int) -> list[Values]:
    """``parts`` pieces of about the same length; the last may be shorter, or empty."""
    length = -(-array.size // parts)
    length = -(-length // _GRAIN) * _GRAIN if length > _GRAIN else length
    cuts = [min(i * length, array.size) for i in range(1, parts)]
    return np.split(array, cuts)


def _one_by_one(group: Communicator, contender: Contender) -> Make:
    def make(xs: list[Values], outs: list[Values]) -> Call:
        def call() -> None:
            for x, out in zip(xs, outs, strict=True):
                group.all_reduce(x, "sum", contender.codec, contender.plan, out=out)

        return call

    return make


def _coalesced(group: Communicator, contender: Contender, backwards: bool) -> Make:
    def make(xs: list[Values], outs: list[Values]) -> Call:
        if backwards:
            xs, outs = xs[::-1], outs[::-1]
        return lambda: group.all_reduce_coalesced(
            xs, "sum", contender.codec, contender.plan, out=outs
        )

    return make


def _together(group: Communicator, contender: Contender) -> Make:
    def make(xs: list[Values], outs: list[Values]) -> Call:
        def call() -> None:
            works = [
                group.all_reduce_async(x, "sum", contender.codec, contender.plan, out=out)
                for x, out in zip(xs, outs, strict=True)
            ]
            for work in works:
                work.wait()

        return call

    return make
