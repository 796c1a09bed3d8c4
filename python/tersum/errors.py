"""The exceptions of tersum: one class per status code, grouped by what a caller should do.

Every message names the rank concerned (where there is one) and the remedy. ``error.code`` is the
stable number that C and C++ callers see, ``error.is_retryable`` tells whether the same call may
succeed in a new group. Where Python has a class of its own for the case (``ValueError``,
``TimeoutError``, ``ConnectionError``, ``OSError``), ours derives from it, too.
"""

from __future__ import annotations

import builtins
import enum
from typing import ClassVar


class StatusCode(enum.IntEnum):
    """Stable numbers, spaced by what to do: 10s change the call; 20s retry in a new group; 30s bad
    data from the network; 40s not possible here; 50s the system refused; 60s a bug of tersum."""

    OK = 0
    INVALID_ARGUMENT = 10
    UNSUPPORTED = 11
    DISAGREEMENT = 12
    PEER_LOST = 20
    TIMEOUT = 21
    ABORTED = 22
    CLOSED = 23
    PROTOCOL = 30
    VERSION_MISMATCH = 31
    UNAVAILABLE = 40
    SYSTEM = 50
    INTERNAL = 60


class TersumError(Exception):
    """Every operating error of tersum; see the subclasses."""

    code: ClassVar[StatusCode] = StatusCode.INTERNAL

    @property
    def is_retryable(self) -> bool:
        """True when the same call may succeed in a new group (codes 20 to 29)."""
        return 20 <= self.code < 30


class InvalidArgumentError(TersumError, ValueError):
    """The call is wrong; the text says what would be allowed. The communicator stays usable."""

    code = StatusCode.INVALID_ARGUMENT


class UnsupportedError(TersumError):
    """A valid wish that this build cannot serve (an element type, a GPU array)."""

    code = StatusCode.UNSUPPORTED


class DisagreementError(TersumError):
    """Ranks called with different arguments; the text names both. The communicator stays usable."""

    code = StatusCode.DISAGREEMENT


class PeerLostError(TersumError, ConnectionError):
    """A peer died or left; the text names it. Make a new communicator without it."""

    code = StatusCode.PEER_LOST


class TimeoutError(TersumError, builtins.TimeoutError):
    """A deadline passed; the text names the rank and step that was waited for."""

    code = StatusCode.TIMEOUT


class AbortedError(TersumError):
    """The communicator was aborted, here or on another rank; the text says by whom and why."""

    code = StatusCode.ABORTED


class ClosedError(TersumError):
    """The communicator was closed."""

    code = StatusCode.CLOSED


class ProtocolError(TersumError):
    """A peer sent something that no tersum sends."""

    code = StatusCode.PROTOCOL


class VersionMismatchError(TersumError):
    """Ranks run tersums whose wire versions differ; install the same one everywhere."""

    code = StatusCode.VERSION_MISMATCH


class UnavailableError(TersumError):
    """Not possible on this machine: no such interface, port taken, store unreachable."""

    code = StatusCode.UNAVAILABLE


class SystemCallError(TersumError, OSError):
    """The operating system refused something; the text has its reason."""

    code = StatusCode.SYSTEM


class InternalError(TersumError):
    """A bug of tersum; please report it with the text."""

    code = StatusCode.INTERNAL


_CLASSES: dict[int, type[TersumError]] = {
    cls.code: cls
    for cls in (
        InvalidArgumentError,
        UnsupportedError,
        DisagreementError,
        PeerLostError,
        TimeoutError,
        AbortedError,
        ClosedError,
        ProtocolError,
        VersionMismatchError,
        UnavailableError,
        SystemCallError,
        InternalError,
    )
}


def error_from_status(code: int, message: str) -> TersumError:
    """The exception for a failed status; InternalError for an unknown code."""
    cls = _CLASSES.get(code)
    return InternalError(f"unknown status {code}: {message}") if cls is None else cls(message)
