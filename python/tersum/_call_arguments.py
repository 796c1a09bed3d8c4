"""Arguments that all calls have: where the result goes, and how long it may take."""

from __future__ import annotations

import numpy as np

from tersum import _core
from tersum._arrays import (
    Buffer,
    Source,
    Target,
    given_output,
    new_output,
    read_input,
    without_overlap,
)
from tersum.errors import InvalidArgumentError

_NOTHING: Buffer = np.empty(0, np.uint8)
_TIMEOUT_MS_MAX = 10 * 365 * 24 * 3600 * 1000


def target_for(out: object, source: Source, shape: tuple[int, ...]) -> Target:
    """The caller's ``out``, or a new array of the caller's kind."""
    return new_output(source, shape) if out is None else given_output(out, source, shape)


def read_added(
    residual: object, bias: object, source: Source, target: Target
) -> tuple[Buffer, Buffer]:
    """What a call adds to ``source`` on its way; empty arrays stand for None."""
    added = {"residual": _NOTHING, "bias": _NOTHING}
    for name, array in (("residual", residual), ("bias", bias)):
        if array is None:
            continue
        read = read_input(array, name)
        if read.dtype != source.dtype:
            raise InvalidArgumentError(
                f"{name} has dtype {read.dtype}, x has {source.dtype}: pass one of {source.dtype}"
            )
        if name == "residual" and read.shape != source.shape:
            raise InvalidArgumentError(
                f"residual has shape {read.shape}, x has {source.shape}: pass one of that shape"
            )
        count, size = source.data.size, read.data.size
        if name == "bias" and count > 0 and (size == 0 or count % size != 0):
            raise InvalidArgumentError(
                f"bias has {size} elements, which does not divide the {count} of x: pass one for "
                "the last dimension"
            )
        added[name] = without_overlap(read, target, in_place=name == "residual").data
    return added["residual"], added["bias"]


def call_ms(timeout_ms: int | None) -> int:
    """Milliseconds for the core, where 0 means the communicator's own deadline."""
    if timeout_ms is None:
        return 0
    if not 1 <= timeout_ms <= _TIMEOUT_MS_MAX:
        raise InvalidArgumentError(
            f"timeout_ms must be 1 or more (None takes the communicator's), got {timeout_ms}"
        )
    return int(timeout_ms)


def call_options(
    codec: str,
    plan: str,
    timeout_ms: int | None,
    max_rel_error: float,
    *,
    attended: bool,
    site: str = "",
) -> _core.CallOptions:
    """How a call is made, as the core wants it."""
    return _core.CallOptions(codec, plan, call_ms(timeout_ms), max_rel_error, attended, site)
