"""What a capture is on a disk, and the side that writes it. ``captured_calls.py`` reads it.

A capture's directory has a folder per process, ``HOST-PID/``, with ``.npy`` files and one
``index.json`` that describes them (docs/tuning.md). Thread safety: CaptureWriter is used by one
thread at a time, Capture by any.
"""

from __future__ import annotations

import abc
import json
import os
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from tersum.errors import InvalidArgumentError, SystemCallError

FORMAT = "tersum-capture 1"
INDEX_NAME = "index.json"
DEFAULT_CALLS = 8
DEFAULT_MAX_BYTES = 1 << 30
#: What is recorded and read back.
FLOATING = ("float32", "bfloat16", "float16")


class CallEntry(TypedDict):
    """One operand of one call on one rank, in ``calls`` of an index."""

    site: str  # for people: "jit_step/all-reduce.3#2@1", "train.py:120 (64, 384) float32"
    id: str  # equal for the calls of one site, on all ranks
    call: str  # equal on the ranks that made the call together, and only there
    collective: str  # "all_reduce", "reduce_scatter"
    op: str  # "sum", "avg"
    dtype: str  # of the values; a .npy file holds bfloat16 as uint16
    count: int  # of values that this rank handed in
    channels: int  # size of the minor dimension; 0: not known
    occurrence: int  # how often the operation had run in its launch: a loop's iteration
    codec: str  # as asked for
    plan: str
    group: list[int]  # of JAX: global device ids in rank order; else ranks
    rank: int  # in the group
    source: str  # where the program has it, as far as it is known
    input: str  # a file beside the index
    sum: str  # of rank 0, or of each rank's part of a reduce_scatter; "" elsewhere


class CaptureSummary(NamedTuple):
    """What a capture kept in this process, and what it left out."""

    directory: Path  # of this process
    calls: int  #: operands of calls in the index
    file_bytes: int
    beyond_calls: int  #: calls of sites that had enough
    beyond_bytes: int  #: calls that ``max_bytes`` had no room for
    failed: int  #: calls that ended with an error

    def __str__(self) -> str:
        return (
            f"{self.calls} calls in {self.directory} ({self.file_bytes} bytes); left out: "
            f"{self.beyond_calls} beyond calls=, {self.beyond_bytes} beyond max_bytes=, "
            f"{self.failed} failed"
        )


class CaptureWriter:
    """Writes one process's folder."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / f"{socket.gethostname()}-{os.getpid()}"
        self._entries: list[CallEntry] = []
        self.file_bytes = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # An index of earlier runs would describe files that are about to be replaced.
            index = self.folder / INDEX_NAME
            if index.exists():
                raise InvalidArgumentError(
                    f"{self.folder} holds a capture of this process already: choose another "
                    "directory, or remove it"
                )
            (self.folder / "probe").write_bytes(b"")
            (self.folder / "probe").unlink()
        except OSError as error:
            raise InvalidArgumentError(
                f"cannot write a capture to {directory}: {error.strerror}; choose a directory "
                "that this process can write to"
            ) from error

    @property
    def calls(self) -> int:
        """Entries so far."""
        return len(self._entries)

    def add(
        self, entry: CallEntry, values: npt.NDArray[Any], total: npt.NDArray[Any] | None
    ) -> None:
        """Writes the files of one operand; fills in their names. OSError when it cannot."""
        name = f"{len(self._entries):05d}"
        entry["input"] = self._save(f"{name}-input.npy", values)
        entry["sum"] = "" if total is None else self._save(f"{name}-sum.npy", total)
        self._entries.append(entry)

    def close(self) -> None:
        """Writes the index. OSError when it cannot."""
        index = {"format": FORMAT, "calls": self._entries}
        temporary = self.folder / (INDEX_NAME + ".part")
        temporary.write_text(json.dumps(index, indent=1), encoding="utf-8")
        temporary.replace(self.folder / INDEX_NAME)

    def _save(self, name: str, values: npt.NDArray[Any]) -> str:
        path = self.folder / name
        np.save(path, values, allow_pickle=False)
        self.file_bytes += path.stat().st_size
        return name


class Capture(abc.ABC):
    """A recording of collectives; see :func:`tersum.capture` and :func:`tersum.jax.capture`.

    Use it in a ``with`` statement, or call :meth:`start` and :meth:`stop`. Any thread; once. One of
    a kind (a subclass, which has a ``running`` of its own) records at a time.
    """

    running: ClassVar[Capture | None]
    _switch = threading.Lock()  # guards every ``running``

    def __init__(self, directory: str | os.PathLike[str], calls: int, max_bytes: int) -> None:
        if calls < 1:
            raise InvalidArgumentError(f"calls must be 1 or more, got {calls}")
        if max_bytes < 1:
            raise InvalidArgumentError(f"max_bytes must be 1 or more, got {max_bytes}")
        self.directory = Path(directory)
        self.calls = calls
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._writer: CaptureWriter | None = None
        self._summary: CaptureSummary | None = None
        #: Why files could not be written, if so; set by whoever writes them.
        self._error: OSError | None = None

    @abc.abstractmethod
    def _begin(self, writer: CaptureWriter) -> None:
        """Starts to record."""

    @abc.abstractmethod
    def _end(self) -> tuple[int, int, int]:
        """Ends the recording and waits for the calls in it; what was left out: beyond calls,
        beyond bytes, failed."""

    def start(self) -> None:
        """Records from now on. InvalidArgumentError, with the remedy, if it cannot."""
        with self._lock:
            if self._writer is not None:
                raise InvalidArgumentError(
                    "this capture was started before: make a new one, with another directory"
                )
            writer = CaptureWriter(self.directory)
            kind = type(self)
            with self._switch:
                if kind.running is not None:
                    raise InvalidArgumentError(
                        f"a capture to {kind.running.directory} is running in this process: stop "
                        "it first"
                    )
                self._begin(writer)
                kind.running = self
            self._writer = writer

    def stop(self) -> CaptureSummary:
        """Ends the recording and writes the index. The same summary when it is called again."""
        with self._lock:
            if self._summary is not None:
                return self._summary
            if self._writer is None:
                raise InvalidArgumentError("this capture was not started: call start() first")
            try:
                left_out = self._end()
            finally:
                type(self).running = None
            writer = self._writer
            try:
                if self._error is not None:
                    raise self._error
                writer.close()
            except OSError as error:
                raise SystemCallError(
                    f"the capture in {writer.folder} is not complete: {error.strerror}; make "
                    "room, or lower max_bytes"
                ) from error
            self._summary = CaptureSummary(
                writer.folder, writer.calls, writer.file_bytes, *left_out
            )
            return self._summary

    def __enter__(self) -> Capture:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
