"""tersum.jax.capture(): records the sums of a program that travel through tersum.

The compiled part copies what calls are given and return; a thread of this module writes the copies
down, so that no collective waits for a disk.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any, ClassVar

import numpy as np

from tersum._capture_files import (
    DEFAULT_CALLS,
    DEFAULT_MAX_BYTES,
    CallEntry,
    Capture,
    CaptureWriter,
)
from tersum.errors import InvalidArgumentError
from tersum.jax import _install
from tersum.jax._jax_version import require_xla_core
from tersum.jax._report import CollectiveRow

_xla = require_xla_core()


class ProgramCapture(Capture):
    """See :func:`capture`."""

    running: ClassVar[ProgramCapture | None] = None

    def __init__(self, directory: str | os.PathLike[str], calls: int, max_bytes: int) -> None:
        super().__init__(directory, calls, max_bytes)
        self._thread: threading.Thread | None = None

    def _begin(self, writer: CaptureWriter) -> None:
        if not _install.active():
            raise InvalidArgumentError(
                "tersum.jax.capture() records what travels through tersum, which is not "
                "installed: call tersum.jax.install() first (codec='exact' changes no value)"
            )
        _xla.start_recording(self.calls, self.max_bytes)
        # A daemon: a program that ends without stop() is not kept by it (and stops at its exit).
        self._thread = threading.Thread(
            target=self._write_all, args=(writer,), name="tersum-capture", daemon=True
        )
        self._thread.start()
        atexit.register(self.stop)

    def _end(self) -> tuple[int, int, int]:
        assert self._thread is not None
        _xla.stop_recording()
        self._thread.join()
        atexit.unregister(self.stop)
        beyond_calls, beyond_bytes, failed = _xla.recording_counts()
        return beyond_calls, beyond_bytes, failed

    def _write_all(self, writer: CaptureWriter) -> None:
        rows: dict[tuple[int, int], CollectiveRow] = {}
        while (calls := _xla.take_recorded()) is not None:
            for call in calls:
                if self._error is not None:
                    continue  # fetched, so that the recording can end
                operation = (call["fingerprint"], call["number"])
                if operation not in rows:  # of a program that was compiled since
                    rows = {(row.fingerprint, row.number): row for row in _install.report()}
                try:
                    _write(writer, call, rows.get(operation))
                except OSError as error:
                    self._error = error
                    _xla.stop_recording()


def capture(
    directory: str | os.PathLike[str],
    *,
    calls: int = DEFAULT_CALLS,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Capture:
    """Records what this process hands to the sums that travel through tersum, and their results.

        tersum.jax.install()
        with tersum.jax.capture("captured", calls=8):
            jax.block_until_ready(step(batch))

    It writes a folder of this process under ``directory``: plain ``.npy`` files and an
    ``index.json`` (docs/tuning.md). ``tersum tune-codec`` reads all folders of a directory, so
    processes may share it. JAX runs ahead: wait for the last result before the capture stops,
    which ends with the calls that have begun.

    :param calls: how many calls of one site to keep on each device; a site is one operand of one
        operation of a compiled program, in one iteration of its loop.
    :param max_bytes: of this process's files; calls that do not fit are left out. Until they are
        written, they are in memory.

    Starting raises InvalidArgumentError if tersum is not installed, the directory cannot be written
    to or a capture is running; stopping raises SystemCallError when the disk was full.
    """
    return ProgramCapture(directory, calls, max_bytes)


def _write(writer: CaptureWriter, call: dict[str, Any], row: CollectiveRow | None) -> None:
    """One entry per operand."""
    operands = call["operands"]
    for number, (dtype, given, total) in enumerate(operands):
        element = np.dtype(np.uint16 if dtype == "bfloat16" else dtype)
        channels = row.channels[number] if row is not None and number < len(row.channels) else 0
        values = np.frombuffer(given, element)
        entry: CallEntry = {
            "site": _site(call, row, number),
            "id": f"{call['fingerprint'] & (2**64 - 1):016x}.{call['number']}.{number}"
            f"@{call['occurrence']}",
            "call": f"{call['key']:016x}.{number}",
            "collective": call["collective"],
            "op": "sum",
            "dtype": dtype,
            "count": values.size,
            "channels": channels,
            "occurrence": call["occurrence"],
            "codec": call["codec"],
            "plan": call["plan"],
            "group": call["group"],
            "rank": call["group"].index(call["device"]),
            "source": row.source if row is not None else "",
            "input": "",
            "sum": "",
        }
        result = np.frombuffer(total, element) if total else None
        writer.add(
            entry, _rows(values, channels), None if result is None else _rows(result, channels)
        )


def _rows(values: Any, channels: int) -> Any:
    """A matrix whose rows are along the minor dimension, where that is known and divides."""
    return values.reshape(-1, channels) if channels and values.size % channels == 0 else values


def _site(call: dict[str, Any], row: CollectiveRow | None, number: int) -> str:
    name = f"{row.program}/{row.operation}" if row is not None else f"operation {call['number']}"
    if len(call["operands"]) > 1:
        name += f"#{number}"
    return f"{name}@{call['occurrence']}" if call["occurrence"] else name
