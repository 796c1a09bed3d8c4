"""Network namespaces that are gone when their user is: the ground under shaped links.

Clean-up has one path only: a guardian process whose standard input is a pipe from this process.
When the pipe closes, because the block was left, by an exception or because this process was
killed, the guardian kills what still runs in the namespaces and removes them.

Thread safety: use one object from one thread. Needs root, and ``ip`` and ``tc`` (iproute2).
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

#: Reno, whatever the host prefers: it sends what its window allows at once, it may be chosen in
#: every namespace (cubic may not where the host does not allow it), and a wire without loss shows
#: no difference otherwise. bbr's pacing costs a tenth of a shaped link, because its estimate of
#: the rate wanders.
_USE_RENO = "echo reno >tcp_congestion_control"

#: What a connection may have below its socket and above the wire, as a driver with byte queue
#: limits has it; the kernel's own limit is 4 MB, a queue of 30 ms at 1 Gbit/s. Packets that two
#: cores take from one cable can pass each other, which TCP takes for a loss. It halves its window
#: then, and half a window must still fill the way there and back, both of which data queue on.
_SMALL_QUEUES = "echo 262144 >tcp_limit_output_bytes"

# Holds what TCP may have queued below the socket; far above what small queues allow, so that the
# shaper delays and never drops: a drop would measure loss recovery, not the wire.
_QUEUE_LIMIT = "16mb"

# A bucket that is full takes no more tokens: what a timer that runs late would have added is lost
# to the link. It has room for as long as the bucket, less the packet that waits, takes to fill.
_TIMER_LATE_S = 100e-6
_PACKET_BYTES_MAX = 65_536  # the kernel's own limit of what segmentation offload hands down
_PACKETS_PER_BUCKET_MAX = 6  # smaller ones cost the processors more than a late timer the link
_PACKET_BYTES_MIN = 4_096  # what the kernel subtracts for headers must leave room for a segment
_counter = itertools.count()

# Reads until the pipe closes, then removes the namespaces named as arguments. Deleting a name does
# not end the processes inside, so these go first.
_GUARDIAN = """
trap '' INT TERM HUP
cat >/dev/null
for name in "$@"; do
  pids=$(ip netns pids "$name" 2>/dev/null) && [ -n "$pids" ] && kill -9 $pids 2>/dev/null
  ip netns del "$name" 2>/dev/null
done
exit 0
"""


class NamespaceError(RuntimeError):
    """The namespaces could not be made; the text names the command and what to do."""


def new_tag() -> str:
    """The beginning of namespace names that no other object of any process uses."""
    return f"tersum-{os.getpid()}-{next(_counter)}"


class RankNetwork(ABC):
    """One namespace per rank, and what joins them. A context manager: made on entry, gone on exit.

    ``namespaces`` and ``addresses`` are by rank; ``inner`` are further namespaces (switches).
    """

    def __init__(
        self, namespaces: Sequence[str], addresses: Sequence[str], inner: Sequence[str]
    ) -> None:
        self.namespaces = tuple(namespaces)
        self.addresses = tuple(addresses)
        self.ranks = len(self.namespaces)
        self._inner = tuple(inner)
        self._guardian: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _build(self) -> None:
        """Joins the namespaces, which exist and have their loopback up."""

    @abstractmethod
    def environment(self, rank: int) -> dict[str, str]:
        """What programs of ``rank`` need to find the network."""

    def __enter__(self) -> Self:
        require_tools()
        self._start_guardian()
        try:
            for name in self._all_namespaces():
                run_tool("ip", "netns", "add", name)
                run_tool("ip", "-n", name, "link", "set", "lo", "up")
                settings = f"cd /proc/sys/net/ipv4 && {_USE_RENO} && {_SMALL_QUEUES}"
                run_tool("ip", "netns", "exec", name, "sh", "-c", settings)
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills what still runs in the namespaces and removes them. Idempotent."""
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        assert guardian.stdin is not None
        guardian.stdin.close()
        guardian.wait()

    def command(self, rank: int, argv: Sequence[str]) -> list[str]:
        """``argv`` prefixed so that it runs in the namespace of ``rank``."""
        self._check_rank(rank)
        return ["ip", "netns", "exec", self.namespaces[rank], *argv]

    def popen(
        self, rank: int, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Starts ``argv`` in the namespace of ``rank``; ``env`` defaults to this process's own."""
        merged = {**(os.environ if env is None else env), **self.environment(rank)}
        return subprocess.Popen(self.command(rank, argv), env=merged, **kwargs)

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.ranks:
            raise ValueError(f"rank {rank} is not one of the link's {self.ranks} ranks")

    def _all_namespaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.namespaces, *self._inner)))

    def _start_guardian(self) -> None:
        self._guardian = subprocess.Popen(
            ["sh", "-c", _GUARDIAN, "sh", *self._all_namespaces()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal must not end the cleaner
            env={**os.environ, "PATH": _path()},
        )


def join(left: str, left_name: str, right: str, right_name: str) -> None:
    """A veth pair between two namespaces, both ends up."""
    run_tool(
        *("ip", "link", "add", left_name, "netns", left, "type", "veth"),
        *("peer", "name", right_name, "netns", right),
    )
    run_tool("ip", "-n", left, "link", "set", left_name, "up")
    run_tool("ip", "-n", right, "link", "set", right_name, "up")


def make_switch(namespace: str) -> None:
    """A bridge in a namespace of its own."""
    run_tool("ip", "-n", namespace, "link", "add", "bridge", "type", "bridge")
    run_tool("ip", "-n", namespace, "link", "set", "bridge", "up")


def plug_in(namespace: str, device: str) -> None:
    """Makes ``device`` a port of the namespace's switch."""
    run_tool("ip", "-n", namespace, "link", "set", device, "master", "bridge")


def packet_bytes_max(rate_bits_per_s: int, burst_bytes: int) -> int:
    """Of the packets that a host hands to a bucket, before they are cut into frames: small enough
    that the bucket loses nothing to a timer 100 us late. At 5 Gbit/s a bucket of 72 KiB behind
    packets of 64 KiB had room for 13 us, and carried 4 to 8 % less than its rate."""
    in_time = burst_bytes - round(rate_bits_per_s / 8 * _TIMER_LATE_S)
    small_enough = max(in_time, burst_bytes // _PACKETS_PER_BUCKET_MAX, _PACKET_BYTES_MIN)
    return min(small_enough, _PACKET_BYTES_MAX)


def shape(namespace: str, device: str, verb: str, rate_bits_per_s: int, burst_bytes: int) -> None:
    """Puts a token bucket (``verb`` add) on what ``device`` sends, or changes its rate."""
    packet_bytes = packet_bytes_max(rate_bits_per_s, burst_bytes)
    run_tool("ip", "-n", namespace, "link", "set", device, "gso_max_size", str(packet_bytes))
    run_tool(
        *("tc", "-n", namespace, "qdisc", verb, "dev", device, "root", "tbf"),
        *("rate", f"{rate_bits_per_s}bit", "burst", f"{burst_bytes}b", "limit", _QUEUE_LIMIT),
    )


def require_tools() -> None:
    """NamespaceError where namespaces cannot be made at all."""
    if os.geteuid() != 0:
        raise NamespaceError(
            "network namespaces need root; run as root (sudo), or leave the link unshaped"
        )
    missing = [name for name in ("ip", "tc") if shutil.which(name, path=_path()) is None]
    if missing:
        raise NamespaceError(
            f"cannot find {' and '.join(missing)}; install iproute2 (apt-get install iproute2)"
        )


def run_tool(*argv: str) -> None:
    """Runs ``ip`` or ``tc``; NamespaceError with its words if it fails."""
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, "PATH": _path()}
    )
    if done.returncode != 0:
        why = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise NamespaceError(
            f"cannot make network namespaces here: `{' '.join(argv)}` failed: {why}; "
            "run as root with CAP_NET_ADMIN and CAP_SYS_ADMIN, or leave the link unshaped"
        )


def _path() -> str:
    # Root's shells under sudo or in a container often lack the sbin folders.
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
