"""Many tensors in one call: what Communicator.all_reduce_coalesced does before the core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tersum import _core
from tersum._arrays import Source, Target, given_output, new_output, read_input, without_overlap
from tersum.errors import InvalidArgumentError
from tersum.work import CoreWork, Work

Array = TypeVar("Array")


class _Together:
    """Several calls of the core as one."""

    def __init__(self, parts: list[_core.Work]) -> None:
        self._parts = parts

    def done(self) -> bool:
        return all(part.done() for part in self._parts)

    def wait(self, timeout_ms: int) -> bool:
        if timeout_ms < 0:
            return all(part.wait(-1) for part in self._parts)
        deadline = time.monotonic() + timeout_ms / 1000
        return all(
            part.wait(max(0, round((deadline - time.monotonic()) * 1000))) for part in self._parts
        )


def start_coalesced(
    core: _core.Communicator,
    tensors: Sequence[Array],
    op: str,
    out: Sequence[Any] | None,
    how: _core.CallOptions,
    recorded: Callable[[int, Source, Target], Target] | None = None,
) -> Work[list[Array]]:
    """Starts one call of the core per element type, in the order in which the types appear.

    :param recorded: of a capture: gives the target that writes an array and its sum down.
    """
    inputs: list[Any] = list(tensors)
    given = None if out is None else list(out)
    if recorded is None and (given is not None or all(type(x) is np.ndarray for x in inputs)):
        # Thousands of NumPy arrays: looking at each of them here would take longer than the call.
        outputs = [np.empty(x.shape, x.dtype) for x in inputs] if given is None else given
        core_work = core.start_all_reduce_coalesced(inputs, outputs, "", op, how)
        if core_work is not None:
            results = outputs.copy()  # the core keeps its list while the call is in flight
            return Work(core_work, Target(np.empty(0), (0,), lambda: results))
    return _start_any(core, inputs, given, op, how, recorded)


def _start_any(
    core: _core.Communicator,
    inputs: list[Any],
    outputs: list[Any] | None,
    op: str,
    how: _core.CallOptions,
    recorded: Callable[[int, Source, Target], Target] | None,
) -> Work[list[Any]]:
    """The same for arrays of any kind, layout and mixture of types."""
    sources = [read_input(x, f"tensors[{i}]") for i, x in enumerate(inputs)]
    if outputs is None:
        targets = [new_output(source, source.shape) for source in sources]
    else:
        targets = _given(outputs, sources)
        sources = [
            without_overlap(source, target, in_place=True)
            for source, target in zip(sources, targets, strict=True)
        ]
    if recorded is not None:
        pairs = zip(sources, targets, strict=True)
        targets = [recorded(i, source, target) for i, (source, target) in enumerate(pairs)]
    lists: dict[str, tuple[list[Any], list[Any]]] = {}
    for source, target in zip(sources, targets, strict=True):
        ins, outs = lists.setdefault(source.dtype, ([], []))
        ins.append(source.data)
        outs.append(target.data)
    if not lists:
        lists["float32"] = ([], [])  # a call that the others must be in, too
    if len(lists) > 1:
        how.attended = False
    parts: list[_core.Work] = []
    for dtype, (ins, outs) in lists.items():
        part = core.start_all_reduce_coalesced(ins, outs, dtype, op, how)
        assert part is not None  # an element type was named
        parts.append(part)
    work: CoreWork = parts[0] if len(parts) == 1 else _Together(parts)
    return Work(work, Target(np.empty(0), (0,), lambda: [target.finish() for target in targets]))


def _given(out: Sequence[Any], sources: list[Source]) -> list[Target]:
    if len(out) != len(sources):
        raise InvalidArgumentError(
            f"out has {len(out)} arrays for {len(sources)} tensors: pass one for each"
        )
    return [
        given_output(array, source, source.shape)
        for array, source in zip(out, sources, strict=True)
    ]
