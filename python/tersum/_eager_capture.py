"""tersum.capture(): records the sums of Communicator's all_reduce, all_reduce_coalesced and
reduce_scatter.

Thread safety: any thread. ``CommunicatorCapture.running`` is read without a lock by every call; a
call that saw a recording end meanwhile is not in it.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from typing import Any, ClassVar

import numpy as np

from tersum._arrays import Source, Target
from tersum._capture_files import (
    DEFAULT_CALLS,
    DEFAULT_MAX_BYTES,
    FLOATING,
    CallEntry,
    Capture,
    CaptureWriter,
)

_FILE_BYTES_MIN = 4096
_HEADER_BYTES = 128


class CommunicatorCapture(Capture):
    """See :func:`capture`."""

    running: ClassVar[CommunicatorCapture | None] = None

    def __init__(self, directory: str | os.PathLike[str], calls: int, max_bytes: int) -> None:
        super().__init__(directory, calls, max_bytes)
        self._mutex = threading.Lock()
        self._out: CaptureWriter | None = None
        self._started: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._calls_of_site: Counter[tuple[str, str, int]] = Counter()
        self._bytes = 0
        self._beyond_calls = self._beyond_bytes = 0

    def _begin(self, writer: CaptureWriter) -> None:
        self._out = writer

    def _end(self) -> tuple[int, int, int]:
        with self._mutex:
            self._out = None
        return self._beyond_calls, self._beyond_bytes, 0

    def record(
        self,
        group: Any,
        collective: str,
        op: str,
        how: tuple[str, str],
        source: Source,
        to: Target,
        place: str = "",
    ) -> Target:
        """``to``, which writes the call down when it is finished. Called before the call starts.
        ``place``: of an array in the list of a call, each of which is a site."""
        if source.dtype not in FLOATING or op not in ("sum", "avg"):
            return to
        entry = _describe(group, collective, op, how, source, place)
        size = source.data.nbytes + to.data.nbytes
        with self._mutex:
            # Also of calls beyond the limits, so that ranks count alike.
            number = self._started.get(group, 0)
            self._started[group] = number + 1
            if not self._has_room(entry, max(size, _FILE_BYTES_MIN) + 2 * _HEADER_BYTES):
                return to
        entry["call"] = f"{group.name} {number}"
        values = source.data.reshape(_rows(source.shape)).copy()
        keeps_sum = collective == "reduce_scatter" or group.rank == 0

        def finish() -> Any:
            self._write(entry, values, to.data if keeps_sum else None)
            return to.finish()

        return to._replace(finish=finish)

    def _has_room(self, entry: CallEntry, size: int) -> bool:
        site = (entry["id"], ",".join(map(str, entry["group"])), entry["rank"])
        if self._calls_of_site[site] >= self.calls:
            self._beyond_calls += 1
            return False
        if self._bytes + size > self.max_bytes:
            self._beyond_bytes += 1
            return False
        self._calls_of_site[site] += 1
        self._bytes += size
        return True

    def _write(self, entry: CallEntry, values: Any, total: Any) -> None:
        with self._mutex:
            if self._out is None or self._error is not None:
                return
            try:
                self._out.add(entry, values, total)
            except OSError as error:
                self._error = error


def capture(
    directory: str | os.PathLike[str],
    *,
    calls: int = DEFAULT_CALLS,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Capture:
    """Records what this process's communicators sum, for ``tersum tune-codec``.

        with tersum.capture("captured", calls=8):
            train_some_steps()

    Every floating-point sum or average of ``all_reduce``, ``all_reduce_coalesced`` and
    ``reduce_scatter`` (calls with a residual or a bias are left out): what this rank handed in, and
    the result. All ranks must start and stop it between the same two calls; they may share the
    directory.

    :param calls: how many calls of one site to keep; a site is a line of the caller's program, with
        the array's shape and type, and its place in a list.
    :param max_bytes: of this process's files; calls that do not fit are left out.

    Starting raises InvalidArgumentError if the directory cannot be written to or a capture is
    running; stopping raises SystemCallError when the disk was full.
    """
    return CommunicatorCapture(directory, calls, max_bytes)


def _describe(
    group: Any, collective: str, op: str, how: tuple[str, str], source: Source, place: str
) -> CallEntry:
    where = _caller()
    name = f"{where}{place} {source.shape} {source.dtype}"
    return {
        "site": name,
        "id": f"{group.name} {collective} {name}",
        "call": "",
        "collective": collective,
        "op": op,
        "dtype": source.dtype,
        "count": source.data.size,
        "channels": source.shape[-1] if len(source.shape) > 1 else 0,
        "occurrence": 0,
        "codec": how[0],
        "plan": how[1],
        "group": list(range(group.size)),
        "rank": group.rank,
        "source": where,
        "input": "",
        "sum": "",
    }


def _rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """A matrix whose rows are along the minor dimension."""
    width = shape[-1] if shape else 1
    return int(np.prod(shape[:-1], dtype=np.int64)), width


def _caller() -> str:
    """File and line of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != "tersum" and not module.startswith("tersum."):
            break
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
