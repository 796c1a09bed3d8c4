"""Launching JAX programs in several real processes, each with several CPU devices.

A test starts them with :func:`run_jax` (all must succeed) or :class:`JaxProcesses` (some may die);
the program calls :func:`join` first. Every process has a hard deadline and is killed afterwards;
its output goes to files, so that nobody blocks on a full pipe.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

PROGRAMS = Path(__file__).parent / "jax_programs"
_INDEX, _COUNT, _PORT = "TERSUM_E2E_INDEX", "TERSUM_E2E_COUNT", "TERSUM_E2E_PORT"


@dataclass(frozen=True)
class Finished:
    """How one process ended; ``code`` is negative when a signal ended it, None when time was up."""

    code: int | None
    output: str
    seconds: float


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def confined_to(cores: int | None) -> Iterator[None]:
    """What this thread starts meanwhile has no more than so many cores, from its first moment on:
    XLA asks once, when it makes its thread pools."""
    before = os.sched_getaffinity(0)
    if cores is not None:
        os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class JaxProcesses:
    """``count`` processes of one program; a context manager that kills what still runs."""

    def __init__(
        self,
        program: str | Path,
        *,
        count: int,
        devices: int,
        arguments: Sequence[str] = (),
        xla_flags: str = "",
        environment: Mapping[str, str] | None = None,
        module: Sequence[str] = (),
        cores: int | None = None,
    ) -> None:
        """``program``: a path, or a name in jax_programs/. ``module``: what to run it with, e.g.
        ``["-m", "tersum.jax"]``. ``cores``: the most that all of them together may use."""
        import tersum

        path = program if isinstance(program, Path) else PROGRAMS / program
        package = str(Path(tersum.__file__).parents[1])
        self._folder = tempfile.TemporaryDirectory(prefix="tersum-jax-")
        self._start = time.monotonic()
        self.outputs = [Path(self._folder.name) / f"output-{i}" for i in range(count)]
        self.children: list[subprocess.Popen[bytes]] = []
        shared = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), package]),
            "PYTHONFAULTHANDLER": "1",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} {xla_flags}",
            _COUNT: str(count),
            _PORT: str(free_port()),
            **(environment or {}),
        }
        for index, output in enumerate(self.outputs):
            with output.open("wb") as file, confined_to(cores):
                self.children.append(
                    subprocess.Popen(
                        [sys.executable, *module, str(path), *arguments],
                        env={**shared, _INDEX: str(index)},
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )
            allowed = len(os.sched_getaffinity(self.children[-1].pid))
            assert cores is None or allowed <= cores, f"{allowed} cores instead of {cores}"

    def __enter__(self) -> JaxProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
        for child in self.children:
            child.wait()
        self._folder.cleanup()

    def output(self, index: int) -> str:
        """What process ``index`` has printed so far, on both streams."""
        return self.outputs[index].read_text(errors="replace")

    def wait_for(self, index: int, text: str, timeout_s: float) -> None:
        """Waits until process ``index`` has printed ``text``; AssertionError otherwise."""
        deadline = time.monotonic() + timeout_s
        while text not in self.output(index):
            ended = self.children[index].poll() is not None
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"process {index} never said {text!r}:\n{self.output(index)}")
            time.sleep(0.02)

    def signal(self, index: int, number: signal.Signals) -> None:
        """Sends a signal to process ``index``."""
        self.children[index].send_signal(number)

    def finish(self, timeout_s: float, only: Sequence[int] | None = None) -> list[Finished]:
        """Waits for the processes (``only`` these); those that are late get a stack dump and
        SIGKILL, and have the code None."""
        deadline = time.monotonic() + timeout_s
        indexes = list(range(len(self.children))) if only is None else list(only)
        return [self._finish(index, deadline) for index in indexes]

    def _finish(self, index: int, deadline: float) -> Finished:
        child = self.children[index]
        code: int | None
        try:
            code = child.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
            child.send_signal(signal.SIGABRT)  # faulthandler prints every thread's stack
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        return Finished(code, self.output(index), time.monotonic() - self._start)


def run_jax(
    program: str | Path,
    *,
    count: int,
    devices: int,
    arguments: Sequence[str] = (),
    timeout_s: float = 180,
    xla_flags: str = "",
    environment: Mapping[str, str] | None = None,
    module: Sequence[str] = (),
    cores: int | None = None,
) -> list[str]:
    """Runs a program to its end in all processes and returns their outputs; AssertionError with all
    outputs when one fails or is late."""
    with JaxProcesses(
        program,
        count=count,
        devices=devices,
        arguments=arguments,
        xla_flags=xla_flags,
        environment=environment,
        module=module,
        cores=cores,
    ) as processes:
        finished = processes.finish(timeout_s)
    if any(end.code != 0 for end in finished):
        details = "\n".join(
            f"--- process {i}: exit code {end.code} after {end.seconds:.1f} s\n{end.output[-6000:]}"
            for i, end in enumerate(finished)
        )
        raise AssertionError(f"{Path(program).name} failed:\n{details}")
    return [end.output for end in finished]


def skip_without_jax() -> None:
    """In a test module: skips it where JAX, or tersum's JAX part, is missing."""
    import pytest

    pytest.importorskip("jax")
    from tersum import _core

    if not _core.has_xla:
        pytest.skip("tersum was built without its JAX part", allow_module_level=True)


def process_index() -> int:
    """In a launched program: which process this is."""
    return int(os.environ[_INDEX])


def join() -> int:
    """In a launched program: ``jax.distributed.initialize`` where there are several processes, and
    this process's index."""
    import jax

    index, count = process_index(), int(os.environ[_COUNT])
    if count > 1:
        jax.distributed.initialize(
            f"127.0.0.1:{os.environ[_PORT]}", count, index, initialization_timeout=60
        )
    return index
