"""A topology built wire by wire: one network namespace per host and switch, one veth per link.

A host owns one address, on its loopback device, and a route to each host that a link (or a way
through switches only) leads to; there is no forwarding, so a node of a torus reaches its neighbours
and nobody else. Both ends of every link have a token bucket of the link's rate and burst, or of
72 KiB where the topology names no burst.

Thread safety: use one object from one thread. Needs root, and ``ip`` and ``tc`` (iproute2).
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import NamedTuple

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
from tersum.cli.shaped_link import DEFAULT_BURST, parse_burst
from tersum.topologies import TopologyShape, describe_topology, read_topology

_HOSTS_MAX = 250
_BURST_BYTES = parse_burst(DEFAULT_BURST)
#: what the ends of a veth take; more than that no wire here has (Linux shapes it with netem, which
#: many machines lack)
_LATENCY_US_MAX = 20.0
_BURST_BYTES_MIN = 8_192  # a bucket drops what is larger than itself, and packets may be of 4 KiB


class _Port(NamedTuple):
    node: int
    device: str
    far_node: int
    rate_bits_per_s: int
    burst_bytes: int


def wired_text(topology: str, rate: str) -> str:
    """The text of a topology (its name, then with links of ``rate``, or the text of a file) as it
    is wired here, which the cost model has to know: its links have buckets, and no latency of more
    than 20 us (``unshaped_latency_us``)."""
    if "{" in topology:
        described = json.loads(topology)
    else:
        described = json.loads(describe_topology(read_topology(topology, rate)))
    for part in (described, *described.get("links", [])):
        if "latency_us" in part:
            part["latency_us"] = min(part["latency_us"], _LATENCY_US_MAX)
    described["burst_bytes"] = described.get("burst_bytes") or _BURST_BYTES
    for link in described.get("links", []):
        if not link.get("burst_bytes"):
            link.pop("burst_bytes", None)
    return json.dumps(described)


def unshaped_latency_us(shape: TopologyShape) -> float:
    """The longest latency that a link of ``shape`` describes and no wire here has; 0 if all have
    theirs."""
    longest = max((link["latency_us"] for link in shape["links"]), default=0.0)
    # Latencies have been seconds meanwhile, and 20 us come back as a little more.
    return longest if longest > _LATENCY_US_MAX * (1 + 1e-9) else 0.0


class WiredTopology(RankNetwork):
    """Context manager: the hosts and wires of a topology."""

    def __init__(self, topology: TopologyShape) -> None:
        hosts = len(topology["hosts"])
        if hosts > _HOSTS_MAX:
            raise ValueError(f"at most {_HOSTS_MAX} hosts can be wired here, not {hosts}")
        self.topology = topology
        tag = new_tag()
        self._nodes = [f"{tag}-{host}" for host in range(hosts)]
        self._nodes += [f"{tag}-switch{i}" for i in range(len(topology["switches"]))]
        self._ports = _ports_of(topology)
        _refuse_thimbles(topology)
        _refuse_loops(topology)
        super().__init__(
            [self._nodes[host] for host in topology["host_of"]],
            [_address(host) for host in topology["host_of"]],
            self._nodes,
        )

    def environment(self, rank: int) -> dict[str, str]:
        """The address of rank 0, for programs that ask for it; only its neighbours reach it."""
        self._check_rank(rank)
        return {"MASTER_ADDR": self.addresses[0]}

    def set_rate(self, factor: float) -> None:
        """Multiplies the described rate of every link by ``factor``, in place."""
        self._shape("change", factor)

    def _build(self) -> None:
        hosts = len(self.topology["hosts"])
        for switch in self._nodes[hosts:]:
            make_switch(switch)
        for i, link in enumerate(self.topology["links"]):
            left, right = link["between"]
            join(self._nodes[left], f"wire{i}", self._nodes[right], f"wire{i}")
        for port in self._ports:
            if port.node >= hosts:
                plug_in(self._nodes[port.node], port.device)
        for host in range(hosts):
            name, address = self._nodes[host], _address(host)
            run_tool("ip", "-n", name, "addr", "add", f"{address}/32", "dev", "lo")
            for other, device in _reachable(self._ports, host, hosts).items():
                run_tool(
                    *("ip", "-n", name, "route", "add", f"{_address(other)}/32"),
                    *("dev", device, "src", address),
                )
        self._shape("add", 1.0)

    def _shape(self, verb: str, factor: float) -> None:
        for port in self._ports:
            rate = round(port.rate_bits_per_s * factor)
            shape(self._nodes[port.node], port.device, verb, rate, port.burst_bytes)


def _address(host: int) -> str:
    return f"10.78.0.{host + 1}"


def _ports_of(topology: TopologyShape) -> list[_Port]:
    ports = []
    for i, link in enumerate(topology["links"]):
        left, right = link["between"]
        rate = round(link["bits_per_s"])
        burst = round(link["burst_bytes"]) or _BURST_BYTES
        for near, far in ((left, right), (right, left)):
            ports.append(_Port(near, f"wire{i}", far, rate, burst))
    return ports


def _refuse_thimbles(topology: TopologyShape) -> None:
    nodes = topology["hosts"] + topology["switches"]
    for link in topology["links"]:
        left, right = (nodes[end] for end in link["between"])
        if 0 < link["burst_bytes"] < _BURST_BYTES_MIN:
            raise NamespaceError(
                f"the link between {left} and {right} has a burst_bytes of "
                f"{link['burst_bytes']:g}, through which no packet would pass; give it "
                f"{_BURST_BYTES_MIN} or more"
            )


def _reachable(ports: list[_Port], host: int, hosts: int) -> dict[int, str]:
    """Hosts that ``host`` reaches without another host between, and by which of its devices."""
    by_node = defaultdict(list)
    for port in ports:
        by_node[port.node].append(port)
    found: dict[int, str] = {}
    for first in by_node[host]:
        pending, seen = [first.far_node], {host}
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if node < hosts:
                found.setdefault(node, first.device)
            else:
                pending += [port.far_node for port in by_node[node]]
    return found


def _refuse_loops(topology: TopologyShape) -> None:
    """Bridges without a spanning tree protocol flood for ever where switches form a loop."""
    hosts = len(topology["hosts"])
    parent = list(range(hosts + len(topology["switches"])))

    def root(node: int) -> int:
        while parent[node] != node:
            node = parent[node]
        return node

    for link in topology["links"]:
        left, right = link["between"]
        if left < hosts or right < hosts:
            continue
        if root(left) == root(right):
            names = topology["switches"]
            raise NamespaceError(
                f"the switches {names[left - hosts]} and {names[right - hosts]} are part of a "
                "loop, which cannot be wired here: leave one of the links between switches away"
            )
        parent[root(left)] = root(right)
