"""A narrow wire on one machine: every rank in a network namespace of its own behind a shaped veth.

Two ranks are joined by one veth pair with a token bucket (``tc tbf``) at both ends. More ranks meet
on a bridge that has a namespace to itself, and every port is shaped both ways, like the port of a
full-duplex switch.

The bucket lets ``burst_bytes`` through at once after idleness, which makes a link look faster than
it is; time calls back to back, or subtract the bucket where a program computes between calls.

Clean-up has one path only: a guardian process whose standard input is a pipe from this process.
When the pipe closes, because the block was left, by an exception or because this process was
killed, the guardian kills what still runs in the namespaces and removes them.

Thread safety: use one object from one thread. Needs root, and ``ip`` and ``tc`` (iproute2).
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

#: Linux's default, whatever the host prefers: bbr's pacing timers alone cost a tenth of 5 Gbit/s on
#: a virtual machine, and measurements on different hosts should mean the same.
_USE_CUBIC = "echo cubic 2>/dev/null >/proc/sys/net/ipv4/tcp_congestion_control || true"

#: Bytes of an Ethernet frame per byte of TCP payload in it: 1448 of 1514 with timestamps on.
FRAME_OVERHEAD = 1514 / 1448

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SIZES = {"b": 1, "kb": 1024, "mb": 1024**2}
_RANKS_MAX = 200  # one IPv4 /24, and nobody's machine has more cores to show it on
# Holds what TCP may have queued below the socket; far above what small queues allow, so that the
# shaper delays and never drops: a drop would measure loss recovery, not the wire.
_QUEUE_LIMIT = "16mb"
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


class ShapedLinkError(RuntimeError):
    """The namespaces could not be made; the text names the command and what to do."""


def parse_rate(text: str) -> int:
    """Bits per second of ``"500mbit"``, ``"0.5gbit"``, ``"1gbit"``; ValueError otherwise."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", text.strip().lower())
    if match is None:
        raise ValueError(
            f"bad link rate {text!r}: give a number and bit, kbit, mbit or gbit, e.g. 1gbit"
        )
    rate = round(float(match[1]) * _UNITS[match[2]])
    if rate < 8_000:
        raise ValueError(f"bad link rate {text!r}: must be at least 8kbit")
    return rate


def parse_burst(text: str) -> int:
    """Bytes of ``"72kb"`` (1024-based, as tc reads it); ValueError otherwise."""
    match = re.fullmatch(r"(\d+)(b|kb|mb)", text.strip().lower())
    if match is None:
        raise ValueError(f"bad burst {text!r}: give a number and b, kb or mb, e.g. 72kb")
    return int(match[1]) * _SIZES[match[2]]


def wire_seconds(payload_bytes: float, rate_bits_per_s: float) -> float:
    """Seconds that a perfect TCP stream needs for ``payload_bytes`` in one direction."""
    return payload_bytes * 8 * FRAME_OVERHEAD / rate_bits_per_s


def unavailable_reason() -> str | None:
    """None where shaped links work; otherwise one sentence saying why not and what to do.

    Really makes (and removes) a link of two namespaces, since containers fail in many ways.
    """
    if os.geteuid() != 0:
        return "network namespaces need root; run as root (sudo), or leave the link unshaped"
    missing = [tool for tool in ("ip", "tc") if _tool(tool) is None]
    if missing:
        return f"cannot find {' and '.join(missing)}; install iproute2 (apt-get install iproute2)"
    try:
        with ShapedLink(ranks=2, rate="1gbit"):
            return None
    except ShapedLinkError as error:
        return str(error)


class ShapedLink:
    """Context manager: ``ranks`` namespaces joined by links of ``rate`` in both directions."""

    def __init__(self, ranks: int = 2, rate: str = "1gbit", *, burst: str = "72kb") -> None:
        if not 2 <= ranks <= _RANKS_MAX:
            raise ValueError(f"a shaped link joins 2 to {_RANKS_MAX} ranks, got {ranks}")
        self.ranks = ranks
        self.interface = "tersum0"
        self.rate_bits_per_s = parse_rate(rate)
        self.burst_bytes = parse_burst(burst)
        tag = f"tersum-{os.getpid()}-{next(_counter)}"
        self.namespaces = tuple(f"{tag}-{rank}" for rank in range(ranks))
        self.addresses = tuple(f"10.77.0.{rank + 1}" for rank in range(ranks))
        self._switch = f"{tag}-switch" if ranks > 2 else None
        self._guardian: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ShapedLink:
        self._require_tools()
        self._start_guardian()
        try:
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

    def environment(self, rank: int) -> dict[str, str]:
        """What programs inside need to find the link: gloo's interface, rank 0's address."""
        self._check_rank(rank)
        return {"GLOO_SOCKET_IFNAME": self.interface, "MASTER_ADDR": self.addresses[0]}

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

    def set_rate(self, rate: str) -> None:
        """Shapes the links anew, in place: connections live on."""
        self.rate_bits_per_s = parse_rate(rate)
        self._shape("change")

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.ranks:
            raise ValueError(f"rank {rank} is not one of the link's {self.ranks} ranks")

    def _require_tools(self) -> None:
        if os.geteuid() != 0:
            raise ShapedLinkError(
                "network namespaces need root; run as root (sudo), or leave the link unshaped"
            )
        for tool in ("ip", "tc"):
            if _tool(tool) is None:
                raise ShapedLinkError(f"cannot find {tool}; install iproute2")

    def _all_namespaces(self) -> tuple[str, ...]:
        return self.namespaces if self._switch is None else (*self.namespaces, self._switch)

    def _start_guardian(self) -> None:
        self._guardian = subprocess.Popen(
            ["sh", "-c", _GUARDIAN, "sh", *self._all_namespaces()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal must not end the cleaner
            env={**os.environ, "PATH": _path()},
        )

    def _build(self) -> None:
        for name in self._all_namespaces():
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "netns", "exec", name, "sh", "-c", _USE_CUBIC)
        if self._switch is None:
            self._pair(self.namespaces[0], self.interface, self.namespaces[1], self.interface)
        else:
            _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
            for rank, name in enumerate(self.namespaces):
                self._pair(name, self.interface, self._switch, f"port{rank}")
                _run(
                    *("ip", "-n", self._switch, "link", "set", f"port{rank}"),
                    *("master", "bridge"),
                )
        for name, address in zip(self.namespaces, self.addresses, strict=True):
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", self.interface)
        self._shape("add")

    def _pair(self, left: str, left_name: str, right: str, right_name: str) -> None:
        _run(
            *("ip", "link", "add", left_name, "netns", left, "type", "veth"),
            *("peer", "name", right_name, "netns", right),
        )
        _run("ip", "-n", left, "link", "set", left_name, "up")
        _run("ip", "-n", right, "link", "set", right_name, "up")

    def _shape(self, verb: str) -> None:
        """Puts a bucket on the sending side of every port, so both directions are shaped."""
        ports = [(name, self.interface) for name in self.namespaces]
        if self._switch is not None:
            ports += [(self._switch, f"port{rank}") for rank in range(self.ranks)]
        for namespace, device in ports:
            _run(
                *("tc", "-n", namespace, "qdisc", verb, "dev", device, "root", "tbf"),
                *("rate", f"{self.rate_bits_per_s}bit", "burst", f"{self.burst_bytes}b"),
                *("limit", _QUEUE_LIMIT),
            )


def _path() -> str:
    # Root's shells under sudo or in a container often lack the sbin folders.
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


def _tool(name: str) -> str | None:
    return shutil.which(name, path=_path())


def _run(*argv: str) -> None:
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, "PATH": _path()}
    )
    if done.returncode != 0:
        why = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise ShapedLinkError(
            f"cannot make network namespaces here: `{' '.join(argv)}` failed: {why}; "
            "run as root with CAP_NET_ADMIN and CAP_SYS_ADMIN, or leave the link unshaped"
        )
