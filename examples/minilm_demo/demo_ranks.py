"""Starts the demo's two ranks on a shaped link (or on loopback) and gives them orders.

The ranks run `demo_worker.py`, each in its own network namespace with its own core where that is
possible. A dead rank, or one that does not answer in time, ends the demo with the tail of its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tersum.cli.shaped_link import ShapedLink, unavailable_reason

RANK_COUNT = 2
LOOPBACK = "loopback"
PORT = 7733
ANSWER_TIMEOUT_S = 240.0
HERE = Path(__file__).resolve().parent


class RankError(RuntimeError):
    """A rank ended or fell silent; the text has the end of its log."""


class Rank:
    """One worker process; `answers` fills from a thread and ends with None when it exits."""

    def __init__(self, index: int, process: subprocess.Popen[str], log: Path) -> None:
        self._index, self._process, self._log = index, process, log
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def order(self, **fields: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(fields) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RankError(self._complaint("ended")) from None

    def answer(self) -> dict[str, Any]:
        """The next answer. Blocks up to ANSWER_TIMEOUT_S; RankError after that."""
        try:
            found = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            raise RankError(
                self._complaint(f"gave no answer for {ANSWER_TIMEOUT_S:.0f} s")
            ) from None
        if found is None:
            raise RankError(self._complaint("ended"))
        return found

    def stop(self) -> None:
        """Lets the process end by itself, then insists. Idempotent."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def _complaint(self, what: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-15:]
        return f"rank {self._index} {what}; the end of {self._log}:\n" + "\n".join(lines)


class Ranks:
    """Both ranks, and the link between them."""

    def __init__(self, ranks: Sequence[Rank], link: ShapedLink | None) -> None:
        self._ranks = ranks
        self._link = link

    def wait_until_ready(self) -> None:
        for rank in self._ranks:
            rank.answer()

    def measure(
        self, wire: str, link: str, batches: int, on_batch: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        """Sets the link's rate and has every rank measure; one `Measurement` per rank, as a dict.

        `on_batch` gets the seconds of each of rank 0's batches as it ends. Blocks until all ranks
        are done.
        """
        if self._link is not None:
            self._link.set_rate(link)
        for rank in self._ranks:
            rank.order(wire=wire, link=link, batches=batches)
        first, *others = self._ranks
        found = [self._collect(first, on_batch)]
        return found + [self._collect(rank, lambda seconds: None) for rank in others]

    @property
    def burst_bytes(self) -> int:
        return 0 if self._link is None else self._link.burst_bytes

    @staticmethod
    def _collect(rank: Rank, on_batch: Callable[[float], None]) -> dict[str, Any]:
        while True:
            answer = rank.answer()
            if "done" in answer:
                return dict(answer["done"])
            on_batch(float(answer["progress"]))


@contextlib.contextmanager
def started_ranks(shaped: bool, options: Sequence[str], out: Path) -> Iterator[Ranks]:
    """Both ranks, started; `options` go to `demo_worker.py`, logs and embeddings into `out`."""
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(ShapedLink(RANK_COUNT, "1gbit")) if shaped else None
        address = "127.0.0.1" if link is None else link.addresses[0]
        port = free_port() if link is None else PORT
        ranks = []
        for index in range(RANK_COUNT):
            log = out / f"rank{index}.log"
            argv = [sys.executable, str(HERE / "demo_worker.py"), *options]
            argv += ["--rank", str(index), "--size", str(RANK_COUNT), "--out", str(out)]
            argv += ["--coordinator", f"{address}:{port}", *core_option(index)]
            stream = stack.enter_context(log.open("w"))
            rank = Rank(index, start(argv, index, link, out, stream), log)
            stack.callback(rank.stop)
            ranks.append(rank)
        yield Ranks(ranks, link)


def start(
    argv: list[str], index: int, link: ShapedLink | None, out: Path, log: IO[str]
) -> subprocess.Popen[str]:
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
    if link is None:
        return subprocess.Popen(argv, env=env, text=True, **pipes)
    # JAX's own collectives listen on the address of the *hostname*, which must therefore be the
    # namespace's. `ip netns exec` gives the rank its own mounts, so this one ends with the rank.
    hosts = out / f"hosts{index}"
    hosts.write_text(f"127.0.0.1 localhost\n{link.addresses[index]} {socket.gethostname()}\n")
    bind = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return link.popen(index, ["sh", "-c", bind, str(hosts), *argv], env=env, text=True, **pipes)


def core_option(index: int) -> list[str]:
    """A core for each rank, as if each had a machine; nothing where there are too few cores."""
    cores = sorted(os.sched_getaffinity(0))
    return ["--core", str(cores[index])] if len(cores) >= RANK_COUNT else []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def why_no_shaped_link() -> str | None:
    """None where shaped links work, else the reason in one sentence."""
    return unavailable_reason()
