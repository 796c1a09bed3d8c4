"""Other libraries' all-reduce as contenders of ``tersum perf``: how each is found and started.

Each is a small program of ``bench/peers``, compiled against that library, one process per rank.
Such a job lives as long as the measurement. Between its turns all of its processes sleep in
``read`` on FIFOs of their own, so that waiting contenders take nothing from the one being measured.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tersum.cli.perf_binding import Cpus, on_all_cpus
from tersum.cli.perf_options import PerfOptions

DEFAULT_FOLDER = "build/peers"  # where scripts/bench --peers leaves the programs
_LAST_WORDS_BYTES = 600
_PROTOCOL = "3"  # as in peer_harness.h


class Start(NamedTuple):
    """One process to start (a launcher, or one rank): its arguments, and what it needs to see."""

    argv: list[str]
    environment: dict[str, str]


class Job(NamedTuple):
    """What processes are started for."""

    program: Path
    folder: str  # of this job alone
    ranks: int
    transport: str
    codec: str
    cpus: Sequence[Cpus]  # of each rank; empty where none is bound


class PeerLibrary(NamedTuple):
    """``starts`` names the processes of a job."""

    program: str
    needs: str  # a command that must be there, "" for none
    install: str
    starts: Callable[[Job], list[Start]]


class PeerError(Exception):
    """A job that did not start, died, or answered nonsense; the text says why."""


def _openmpi(job: Job) -> list[Start]:
    # Open MPI's own way: it yields when there are more ranks than cores.
    argv = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    argv += ["-n", str(job.ranks), "--mca", "pml", "ob1"]
    if job.transport == "tcp":
        argv += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    else:
        argv += ["--mca", "btl", "vader,self"]
    return [Start([*argv, str(job.program), job.folder], {})]


def _mpich(job: Job) -> list[Start]:
    # Debian's is ch4:ucx. Without NOLOCAL ranks of one host would use its own shared memory
    # whatever UCX may do.
    environment = {}
    if job.transport == "tcp":
        environment = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
    argv = ["mpirun.mpich", "-n", str(job.ranks), str(job.program), job.folder]
    return [Start(argv, environment)]


def _oneccl(job: Job) -> list[Start]:
    prefix = job.program.parent / "oneccl"
    shared = {
        "CCL_ATL_TRANSPORT": "ofi",
        "CCL_ATL_SHM": "1" if job.transport == "shm" else "0",
        "FI_PROVIDER": "tcp,shm" if job.transport == "shm" else "tcp",
        "FI_PROVIDER_PATH": str(prefix / "lib"),
        "FI_TCP_IFACE": "lo",
        "CCL_KVS_IFACE": "lo",
        "CCL_LOG_LEVEL": "error",
        "CCL_ROOT": str(prefix),
        "LD_LIBRARY_PATH": str(prefix / "lib"),
        "CCL_LOCAL_SIZE": str(job.ranks),
    }
    # Its helper thread wants a CPU of its own per rank; without one it is 100 times slower. Left to
    # itself it would bind them to the machine's last CPUs, whatever its process may use.
    usable = [len(share) for share in job.cpus] or [len(os.sched_getaffinity(0)) // job.ranks]
    if min(usable) < 2:
        shared["CCL_WORKER_OFFLOAD"] = "0"
    elif job.cpus:
        shared["CCL_WORKER_AFFINITY"] = ",".join(str(share[-1]) for share in job.cpus)
    return [
        Start(
            [str(job.program), job.folder, str(rank), str(job.ranks)],
            {**shared, "CCL_LOCAL_RANK": str(rank)},
        )
        for rank in range(job.ranks)
    ]


def _tersum(job: Job) -> list[Start]:
    how = [str(job.ranks), job.transport, job.codec]
    return [Start([str(job.program), job.folder, str(rank), *how], {}) for rank in range(job.ranks)]


PEERS: dict[str, PeerLibrary] = {
    "openmpi": PeerLibrary(
        "openmpi_all_reduce", "mpirun.openmpi", "apt-get install openmpi-bin", _openmpi
    ),
    "mpich": PeerLibrary("mpich_all_reduce", "mpirun.mpich", "apt-get install mpich", _mpich),
    "oneccl": PeerLibrary("oneccl_all_reduce", "", "", _oneccl),
    "tersum-c++": PeerLibrary("tersum_all_reduce", "", "", _tersum),
}


def why_not(name: str, folder: Path, options: PerfOptions, local: bool) -> str:
    """Why this library cannot take part here; empty if it can."""
    peer = PEERS[name]
    if not local:
        return "it needs ranks that tersum perf starts itself (--ranks), on links of this machine"
    if (options.op, options.redop, options.dtype) != ("all_reduce", "sum", "float32"):
        return "its program measures all_reduce of float32, sum"
    if peer.needs and shutil.which(peer.needs) is None:
        return f"no {peer.needs} here: {peer.install}"
    if not os.access(folder / peer.program, os.X_OK):
        return f"no {folder / peer.program}: scripts/bench --peers builds it"
    return ""


class PeerJob:
    """The running processes of one library. Used by one thread; close() ends them all."""

    def __init__(
        self,
        peer: PeerLibrary,
        folder: Path,
        ranks: int,
        transport: str,
        codec: str,
        timeout_s: float,
        cpus: Sequence[Cpus] = (),
    ) -> None:
        self._timeout_s = timeout_s
        self._others = ranks - 1
        self._exit = contextlib.ExitStack()
        program = (folder / peer.program).resolve()
        try:
            own = self._exit.enter_context(tempfile.TemporaryDirectory(prefix="tersum-peer-"))
            with on_all_cpus(cpus):
                self._start(peer, Job(program, own, ranks, transport, codec, cpus))
        except BaseException:
            self._exit.close()
            raise

    def _start(self, peer: PeerLibrary, job: Job) -> None:
        shares = [" ".join(str(cpu) for cpu in share) for share in job.cpus]
        Path(job.folder, "cpus").write_text("".join(f"{share}\n" for share in shares))
        names = [os.path.join(job.folder, f"in.{rank}") for rank in range(job.ranks)]
        answers, done = (os.path.join(job.folder, name) for name in ("out", "done"))
        for name in [*names, answers, done]:
            os.mkfifo(name)
        self._words = open(os.path.join(job.folder, "words"), "w+b")  # noqa: SIM115
        self._exit.callback(self._words.close)
        # Opened for both directions: opening one for its own would wait for the other side.
        both = os.O_RDWR | os.O_CLOEXEC
        self._orders = [os.open(name, both) for name in names]
        self._answers = os.open(answers, both | os.O_NONBLOCK)
        self._done = os.open(done, both | os.O_NONBLOCK)
        for fd in [*self._orders, self._answers, self._done]:
            self._exit.callback(os.close, fd)
        self._children: list[subprocess.Popen[bytes]] = []
        self._exit.callback(self._end)
        for start in peer.starts(job):
            self._children.append(
                subprocess.Popen(
                    start.argv,
                    env={**os.environ, **start.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=self._words,
                    stderr=self._words,
                    process_group=0,  # as perf_spawn.py's
                )
            )
        if self._answer() != ["bound" if job.cpus else "free", _PROTOCOL]:
            raise PeerError(
                "it does not bind its ranks as asked, or was built for another version; build it: "
                "scripts/bench --peers"
            )

    def ask(self, order: str) -> list[str]:
        """Gives all ranks an order and returns the words of rank 0's answer, when all have
        left the library again: a rank that still spins there would slow the next contender."""
        line = order.encode() + b"\n"
        for fd in self._orders:
            os.write(fd, line)
        words = self._answer()
        self._read(self._done, lambda said: len(said) == self._others)
        return words

    def close(self) -> None:
        """Ends the processes and removes the files."""
        self._exit.close()

    def _read(self, fd: int, is_all: Callable[[bytes], bool]) -> bytes:
        said = b""
        deadline = time.monotonic() + self._timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while not is_all(said):
                if selector.select(0.1):
                    said += os.read(fd, 1 << 16)
                elif any(child.poll() is not None for child in self._children):
                    raise PeerError(f"it ended: {self._last_words()}")
                elif time.monotonic() > deadline:
                    raise PeerError(f"no answer within {self._timeout_s:.0f} s")
        return said

    def _answer(self) -> list[str]:
        # One line for one order, and nothing else in between.
        line = self._read(self._answers, lambda said: said.endswith(b"\n"))
        words = line.decode().split()
        if not words or words[0] not in ("ready", "ok"):
            raise PeerError(f"it answered {line.decode()!r}")
        return words[1:]

    def _last_words(self) -> str:
        self._words.seek(0)
        text = self._words.read().decode(errors="replace")[-_LAST_WORDS_BYTES:]
        return " / ".join(line.strip() for line in text.splitlines() if line.strip()) or "silently"

    def _end(self) -> None:
        for fd in self._orders:
            with contextlib.suppress(OSError):
                os.write(fd, b"quit\n")
        deadline = time.monotonic() + 5
        for child in self._children:
            try:
                child.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                # A launcher's ranks see their FIFOs close, at the latest when this process ends.
                child.kill()
                child.wait()


class Turns:
    """What rank 0 asks of a job; the other ranks have none. Numbers of a job that failed are inf,
    which all ranks see, and ``failure`` says why on rank 0."""

    def __init__(self, start: Callable[[], PeerJob] | None, in_place: bool):
        self.failure = ""
        self._in_place = int(in_place)
        self._job: PeerJob | None = None
        if start is not None:
            self._guard(lambda: setattr(self, "_job", start()))

    def check(self, count: int) -> float:
        """Elements that were not the exact sum."""
        return self._numbers(f"check {count} {self._in_place}", 1)[0]

    def time(self, count: int, batches: int, calls: int) -> list[float]:
        """Seconds of a call in each of ``batches`` batches of ``calls`` on the slowest rank."""
        return self._numbers(f"time {count} {batches} {calls} {self._in_place}", batches)

    def close(self) -> None:
        """Ends the job."""
        if self._job is not None:
            self._job.close()
            self._job = None

    def _numbers(self, order: str, wanted: int) -> list[float]:
        numbers: Sequence[float] = ()

        def ask() -> None:
            nonlocal numbers
            if self._job is not None:
                numbers = [float(word) for word in self._job.ask(order)]
                if len(numbers) != wanted:
                    raise PeerError(f"it answered {len(numbers)} numbers to {order!r}")

        self._guard(ask)
        if self.failure:
            return [float("inf")] * wanted
        return list(numbers) or [0.0] * wanted

    def _guard(self, act: Callable[[], None]) -> None:
        if self.failure:
            return
        try:
            act()
        except (PeerError, OSError, ValueError) as error:
            self.failure = str(error)
            self.close()
