"""Arguments that all calls have: where the result goes, and how long it may take."""

from __future__ import annotations

from tersum import _core
from tersum._arrays import Source, Target, given_output, new_output
from tersum.errors import InvalidArgumentError

_TIMEOUT_MS_MAX = 10 * 365 * 24 * 3600 * 1000


def target_for(out: object, source: Source, shape: tuple[int, ...]) -> Target:
    """The caller's ``out``, or a new array of the caller's kind."""
    return new_output(source, shape) if out is None else given_output(out, source, shape)


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
