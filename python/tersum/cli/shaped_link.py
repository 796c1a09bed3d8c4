"""A narrow wire on one machine: every rank in a network namespace of its own behind a shaped veth.

Two ranks are joined by one veth pair with a token bucket (``tc tbf``) at both ends. More ranks meet
on a bridge that has a namespace to itself, and every port is shaped both ways, like the port of a
full-duplex switch.

The bucket lets ``burst_bytes`` through at once after idleness, which makes a link look faster than
it is; time calls back to back, or subtract the bucket where a program computes between calls.

Thread safety: use one object from one thread. Needs root, and ``ip`` and ``tc`` (iproute2).
"""

from __future__ import annotations

import re

from tersum.cli.network_namespaces import (
    NamespaceError,
    RankNetwork,
    join,
    make_switch,
    new_tag,
    plug_in,
    run_tool,
    shape,
)

#: Bytes of an Ethernet frame per byte of TCP payload in it: 1448 of 1514 with timestamps on.
FRAME_OVERHEAD = 1514 / 1448
#: The bucket of a link that names none, as ``tc`` writes it.
DEFAULT_BURST = "72kb"

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SIZES = {"b": 1, "kb": 1024, "mb": 1024**2}
_RANKS_MAX = 200  # one IPv4 /24, and nobody's machine has more cores to show it on


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
    try:
        with ShapedLink(ranks=2, rate="1gbit"):
            return None
    except NamespaceError as error:
        return str(error)


class ShapedLink(RankNetwork):
    """Context manager: ``ranks`` namespaces joined by links of ``rate`` in both directions."""

    def __init__(self, ranks: int = 2, rate: str = "1gbit", *, burst: str = DEFAULT_BURST) -> None:
        if not 2 <= ranks <= _RANKS_MAX:
            raise ValueError(f"a shaped link joins 2 to {_RANKS_MAX} ranks, got {ranks}")
        self.interface = "tersum0"
        self.rate_bits_per_s = parse_rate(rate)
        self.burst_bytes = parse_burst(burst)
        tag = new_tag()
        self._switch = f"{tag}-switch" if ranks > 2 else None
        super().__init__(
            [f"{tag}-{rank}" for rank in range(ranks)],
            [f"10.77.0.{rank + 1}" for rank in range(ranks)],
            [self._switch] if self._switch else [],
        )

    def environment(self, rank: int) -> dict[str, str]:
        """What programs inside need to find the link: gloo's interface, rank 0's address."""
        self._check_rank(rank)
        return {"GLOO_SOCKET_IFNAME": self.interface, "MASTER_ADDR": self.addresses[0]}

    def set_rate(self, rate: str) -> None:
        """Shapes the links anew, in place: connections live on."""
        self.rate_bits_per_s = parse_rate(rate)
        self._shape("change")

    def _build(self) -> None:
        if self._switch is None:
            join(self.namespaces[0], self.interface, self.namespaces[1], self.interface)
        else:
            make_switch(self._switch)
            for rank, name in enumerate(self.namespaces):
                join(name, self.interface, self._switch, f"port{rank}")
                plug_in(self._switch, f"port{rank}")
        for name, address in zip(self.namespaces, self.addresses, strict=True):
            run_tool("ip", "-n", name, "addr", "add", f"{address}/24", "dev", self.interface)
        self._shape("add")

    def _shape(self, verb: str) -> None:
        """Puts a bucket on the sending side of every port, so both directions are shaped."""
        ports = [(name, self.interface) for name in self.namespaces]
        if self._switch is not None:
            ports += [(self._switch, f"port{rank}") for rank in range(self.ranks)]
        for namespace, device in ports:
            shape(namespace, device, verb, self.rate_bits_per_s, self.burst_bytes)
