"""Work: a call in the background."""

from __future__ import annotations

import threading
from typing import Any, Generic, Protocol, TypeVar, cast

from tersum._arrays import Target
from tersum.errors import InvalidArgumentError, TimeoutError

Array = TypeVar("Array")


class CoreWork(Protocol):
    """What drives a call: the compiled core's Work, or several of them."""

    def done(self) -> bool:
        """True once the call has ended. Never blocks."""

    def wait(self, timeout_ms: int) -> bool:
        """False when ``timeout_ms`` (>= 0) passed first; raises what the call failed with."""


class Work(Generic[Array]):
    """A collective in flight. Its arrays are kept alive until it has ended, even if this object is
    dropped; do not write to them (nor read the output) before that. Any thread."""

    def __init__(self, core: CoreWork, target: Target | None) -> None:
        self._core = core
        self._target = target
        self._result: Any = None
        self._lock = threading.Lock()

    def done(self) -> bool:
        """True once the call has ended, well or not. Never blocks."""
        return self._core.done()

    def wait(self, timeout_ms: int | None = None) -> None:
        """Blocks until the call has ended; raises what it failed with (again at every call).

        With ``timeout_ms`` it raises TimeoutError when that passes first; the call goes on then.
        Ctrl-C aborts the communicator and raises KeyboardInterrupt.
        """
        if not self._core.wait(_wait_ms(timeout_ms)):
            raise TimeoutError(
                f"the call had not ended after {timeout_ms} ms; it goes on: wait again, or abort() "
                "the communicator"
            )
        with self._lock:
            if self._target is not None:
                self._result = self._target.finish()
                self._target = None

    def result(self, timeout_ms: int | None = None) -> Array:
        """Waits, as :meth:`wait` does, and returns the output array (None for a barrier)."""
        self.wait(timeout_ms)
        return cast(Array, self._result)


def _wait_ms(timeout_ms: int | None) -> int:
    """Milliseconds for the core, where -1 waits for the call's own deadline."""
    if timeout_ms is None:
        return -1
    if timeout_ms < 0:
        raise InvalidArgumentError(f"timeout_ms must be 0 or more, got {timeout_ms}")
    return int(timeout_ms)
