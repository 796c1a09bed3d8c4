"""Topologies: which hosts have wires between them, by name or from a small JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from tersum import _core
from tersum.errors import InvalidArgumentError


class TopologyLink(TypedDict):
    """Two nodes (hosts first, then switches, by index) and the wire that joins them, which carries
    ``bits_per_s`` in each direction. ``burst_bytes``: a token bucket's, which passes at once after
    a rest; 0 where there is none."""

    between: tuple[int, int]
    bits_per_s: float
    latency_us: float
    burst_bytes: float


class TopologyShape(TypedDict):
    """A topology. ``host_of`` is by rank; ``dims`` are a grid's extents, empty for other shapes."""

    name: str
    ranks: int
    host_of: list[int]
    hosts: list[str]
    switches: list[str]
    links: list[TopologyLink]
    dims: list[int]


def topology_text(topology: str) -> str:
    """What the core takes: names as they are, the text of a file (``….json``).

    InvalidArgumentError if the file cannot be read."""
    if not topology.endswith(".json"):
        return topology
    try:
        return Path(topology).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"cannot read topology {topology}: {error.strerror}") from None


def read_topology(topology: str, rate: str = "1gbit", latency_us: float = 20) -> TopologyShape:
    """The topology of a name, whose links then have ``rate`` and ``latency_us``, or of a file.

    InvalidArgumentError names the line of a file that is wrong.
    """
    name, ranks, host_of, hosts, switches, links, dims = _core.read_topology(
        topology_text(topology), rate, latency_us
    )
    return TopologyShape(
        name=name,
        ranks=ranks,
        host_of=host_of,
        hosts=hosts,
        switches=switches,
        links=[
            TopologyLink(
                between=(left, right),
                bits_per_s=bits_per_s,
                latency_us=latency,
                burst_bytes=burst,
            )
            for left, right, bits_per_s, latency, burst in links
        ],
        dims=dims,
    )


def describe_topology(shape: TopologyShape) -> str:
    """The text of a file that has the links of a named topology, with their rates and latencies."""
    nodes = shape["hosts"] + shape["switches"]
    ranks: list[list[int]] = [[] for _ in shape["hosts"]]
    for rank, host in enumerate(shape["host_of"]):
        ranks[host].append(rank)
    return json.dumps(
        {
            "name": shape["name"],
            "shape": shape["name"],
            "hosts": [
                {"name": name, "ranks": on_it}
                for name, on_it in zip(shape["hosts"], ranks, strict=True)
            ],
            "switches": shape["switches"],
            "links": [
                {
                    "between": [nodes[end] for end in link["between"]],
                    "rate": f"{link['bits_per_s']:.0f}bit",
                    "latency_us": link["latency_us"],
                    "burst_bytes": link["burst_bytes"],
                }
                for link in shape["links"]
            ],
        }
    )
