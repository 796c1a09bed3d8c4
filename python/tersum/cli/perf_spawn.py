"""Starts the local ranks of ``tersum perf``, in namespaces on a shaped link if asked, and collects.

The parent takes no part in the group. A rank that fails ends the others at once, and its message is
what the user sees. Children end when their standard input closes, whatever becomes of the parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tersum
from tersum.cli.command_error import CommandError
from tersum.cli.network_namespaces import NamespaceError, RankNetwork
from tersum.cli.perf_binding import Cpus
from tersum.cli.perf_options import PerfOptions, Row, Skip
from tersum.cli.shaped_link import ShapedLink
from tersum.cli.wired_topology import WiredTopology
from tersum.topologies import TopologyShape

# Not -m: the package has imported the module already, and runpy would warn of that.
_CHILD = "from tersum.cli.perf_worker import run_child; run_child()"


def run_local_ranks(
    options: PerfOptions, ranks: int, link_rate: str | None, shape: TopologyShape | None = None
) -> Iterator[Row | Skip]:
    """Rows, as they are measured by ``ranks`` processes of this machine, on a link of
    ``link_rate`` or on the wires of ``shape``. All processes, namespaces and files are gone when
    the iterator ends, in whatever way."""
    with contextlib.ExitStack() as stack:
        link: RankNetwork | None = None
        if shape is not None or link_rate is not None:
            try:
                network = (
                    WiredTopology(shape)
                    if shape is not None
                    else ShapedLink(ranks, link_rate or "1gbit")
                )
                link = stack.enter_context(network)
            except NamespaceError as error:
                asked = "--link" if shape is None else "--topology"
                raise CommandError(f"{asked}: {error}") from error
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tersum-perf-"))
        children: list[subprocess.Popen[bytes]] = []
        stack.callback(_stop, children)
        for rank in range(ranks):
            with _interrupts_held():
                children.append(_start(options, rank, ranks, link, folder))
        yield from _collect(children)


def _start(
    options: PerfOptions, rank: int, ranks: int, link: RankNetwork | None, folder: str
) -> subprocess.Popen[bytes]:
    # The folder is the store: all ranks see it, whatever wires they have.
    addresses = ["127.0.0.1"] * ranks if link is None else link.addresses
    job = {
        "rank": rank,
        "size": ranks,
        "store": f"file://{folder}/store",
        "listen": addresses[rank],
        "root": addresses[0],
        "meet": os.path.join(folder, "gloo"),
        "options": options.to_json(),
    }
    code = child_code(options.cpus[rank] if options.cpus else ())
    argv = [sys.executable, "-c", code, json.dumps(job)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": _python_path()}
    if link is not None:
        argv = link.command(rank, argv)
        environment.update(link.environment(rank))
    return subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Ctrl-C is the parent's to handle. Of no session of its own: Linux shares a core out among
        # sessions first, and sched_yield gives way within one alone.
        process_group=0,
    )


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C is raised when the block has ended: within Popen it would leave a process that nobody
    knows of."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if seen:
            signal.raise_signal(signal.SIGINT)


def child_code(cpus: Cpus) -> str:
    """What a rank runs, kept to ``cpus`` (empty: to none) before it imports what starts threads."""
    bind = f"import os; os.sched_setaffinity(0, {sorted(cpus)}); " if cpus else ""
    return bind + _CHILD


def _python_path() -> str:
    """The children import the tersum that this process runs."""
    package_root = str(Path(tersum.__file__).resolve().parent.parent)
    visible = [str(Path(tersum.__file__).parent.parent), package_root]
    return os.pathsep.join([*visible, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)


def _collect(children: list[subprocess.Popen[bytes]]) -> Iterator[Row | Skip]:
    """Rows from rank 0 until all children have ended; CommandError with the words of the first that
    failed."""
    errors: dict[int, bytes] = dict.fromkeys(range(len(children)), b"")
    pending = b""
    with selectors.DefaultSelector() as selector:
        for rank, child in enumerate(children):
            assert child.stderr is not None
            selector.register(child.stderr, selectors.EVENT_READ, (rank, "err"))
        assert children[0].stdout is not None
        selector.register(children[0].stdout, selectors.EVENT_READ, (0, "out"))
        while selector.get_map():
            for key, _ in selector.select():
                rank, stream = key.data
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                    _raise_if_failed(rank, children[rank], stream, errors)
                elif stream == "err":
                    errors[rank] += chunk
                else:
                    *lines, pending = (pending + chunk).split(b"\n")
                    yield from (_parse(line) for line in lines)
    for rank, child in enumerate(children):
        _raise_if_failed(rank, child, "err", errors)


def _parse(line: bytes) -> Row | Skip:
    row: Row | Skip = json.loads(line)
    return row


def _raise_if_failed(
    rank: int, child: subprocess.Popen[bytes], stream: str, errors: dict[int, bytes]
) -> None:
    """A child's closed standard error means that it has ended, or is about to."""
    if stream != "err":
        return
    status = child.wait()
    if status == 0:
        return
    words = errors[rank].decode(errors="replace").strip()
    if status < 0:
        name = signal.Signals(-status).name
        words = f"rank {rank} was ended by {name}. {words}".strip()
    raise CommandError(words.removeprefix("tersum perf: ") or f"rank {rank} ended with {status}")


def _stop(children: list[subprocess.Popen[Any]]) -> None:
    for child in children:
        if child.poll() is None:
            child.kill()
    for child in children:
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
