"""Groups for tests: ranks as threads of this process, or as processes of this machine."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Ranks are threads of this process: products of NumPy that took all cores would only wait for each
# other. Read when NumPy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest

import tersum

# A shell without job control starts what runs in its background with Ctrl-C ignored, and what that
# starts would ignore it, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_PACKAGE_ROOT = str(Path(tersum.__file__).parent.parent)


@pytest.fixture
def run_group() -> Callable[..., list[Any]]:
    """``run_group(size, body, **options)`` runs ``body(communicator)`` on ``size`` threads and
    returns what they returned, in rank order; the first exception otherwise."""

    def run(size: int, body: Callable[[tersum.Communicator], Any], **options: Any) -> list[Any]:
        store = tersum.MemoryStore()
        options.setdefault("timeout_ms", 20_000)

        def rank_main(rank: int) -> Any:
            with tersum.Communicator(rank, size, store, **options) as group:
                return body(group)

        with concurrent.futures.ThreadPoolExecutor(size) as pool:
            futures = [pool.submit(rank_main, rank) for rank in range(size)]
            return [future.result(60) for future in futures]

    return run


@pytest.fixture
def alone() -> Iterator[tersum.Communicator]:
    """A group of one: arrays in and out without a network."""
    with tersum.Communicator(0, 1) as group:
        yield group


class Ranks:
    """Processes that run one script, where ``rank``, ``size`` and ``store`` are defined."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.children: list[subprocess.Popen[str]] = []

    def start(self, size: int, script: str) -> None:
        prelude = """
            import sys, time, signal, os
            import numpy as np
            import tersum
            rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
            def say(text):
                print(text, flush=True)
        """
        path = self._folder / "rank.py"
        path.write_text(textwrap.dedent(prelude) + textwrap.dedent(script))
        store = f"file://{self._folder}/store"
        environment = {**os.environ, "PYTHONPATH": _PACKAGE_ROOT}
        for rank in range(size):
            self.children.append(
                subprocess.Popen(
                    [sys.executable, str(path), str(rank), str(size), store],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def line(self, rank: int) -> str:
        stdout = self.children[rank].stdout
        assert stdout is not None
        text = stdout.readline().strip()
        if not text:
            stderr = self.children[rank].stderr
            assert stderr is not None
            pytest.fail(f"rank {rank} said nothing; its standard error: {stderr.read()}")
        return text

    def finish(self, rank: int, timeout: float = 60) -> tuple[int, str, str]:
        child = self.children[rank]
        out, err = child.communicate(timeout=timeout)
        return child.returncode, out, err

    def stop(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Ranks as processes; what still runs at the end of the test is killed."""
    group = Ranks(tmp_path)
    yield group
    group.stop()
