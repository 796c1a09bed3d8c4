"""What ``tersum perf`` measures, and the row that it reports per measurement."""

from __future__ import annotations

import dataclasses
from typing import Any, NotRequired, TypedDict, final

#: The collectives that move anything.
OPS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "all_to_all",
    "gather",
    "scatter",
)
#: Those that leave the same array on every rank.
SAME_EVERYWHERE = ("all_reduce", "all_gather", "broadcast")
#: Those of arrays that the ranks share out: a call counts one part.
SHARED_OUT = ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")
REDOPS = ("sum", "avg", "max", "min")
PLANS = (
    "auto",
    "two_step",
    "ring",
    "one_shot",
    "bidirectional_ring",
    "halving_doubling",
    "torus",
    "tree",
    "hierarchical",
)
TRANSPORTS = ("auto", "tcp", "shm")
LIBRARIES = ("gloo", "openmpi", "mpich", "oneccl")  # that --compare all compares with
BARE = "bare"  # no library: a stream of the same bytes


@dataclasses.dataclass(frozen=True)
class PerfOptions:
    """Equal on all ranks; travels to the children as JSON."""

    op: str
    redop: str
    dtype: str
    codecs: tuple[str, ...]
    plans: tuple[str, ...]
    transport: str
    sizes: tuple[int, ...]  # bytes of the whole array, before rounding to whole elements
    iters: int
    warmup: int
    seed: int
    compare: tuple[str, ...]
    timeout_ms: int
    streams: int
    link_bits_per_s: int  # 0: not shaped
    peers: str = ""  # the folder with the programs of other libraries
    metrics_port: int = 0  # rank r serves its counters at this port + r; 0: no rank does
    explain: bool = False  # rows say what a call left open took
    predict: bool = False  # tune, so that rows have predictions
    max_rel_error: float = 0.0  # of codec auto
    topology_bits_per_s: int = 0  # of a named topology's links
    topology: str = ""  # a name or a file's text; empty: everybody reaches everybody
    wires: str = ""  # what ranks pass as their topology: with rates and buckets; empty: the above
    coalesce: int = 0  # all_reduce: cut into this many tensors; 0: not
    batch: int = 1  # calls back to back that are timed as one
    in_flight: int = 1  # all_reduce: as this many calls together, too
    in_place: bool = False  # all_reduce: the input is the output, as gloo always works
    cpus: tuple[tuple[int, ...], ...] = ()  # those of each local rank; empty: none is bound

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> PerfOptions:
        """The inverse of :meth:`to_json`."""
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        plain["cpus"] = tuple(tuple(share) for share in plain["cpus"])
        return cls(**plain)


class Row(TypedDict):
    """One measurement. Times are of the slowest rank in each iteration, which is ``--batch`` calls
    back to back, over their number: median, minimum, maximum.

    ``predicted_us`` is what was expected before: on shaped links by the cost model of their
    topology, elsewhere, in a tuned group, by what tuning measured.

    ``bytes`` is the whole array (the input of a reduce_scatter or all_to_all, the output of an
    all_gather, the root's array of a gather or scatter) and ``count`` its elements; ``wire_bytes``
    the payload that the busiest rank sent per call.
    """

    library: str
    op: str
    dtype: str
    count: int
    bytes: int
    codec: str
    plan: str
    transport: str
    ranks: int
    time_us: float
    time_us_min: float
    time_us_max: float
    predicted_us: float | None  # of time_us; None (null) where nothing is known to go by
    busbw_gb_s: float
    wire_bytes: int
    rel_error: float  # rel-L2 against the sum in float64
    wrong: int  # elements outside the stated bound, or not the same on all ranks
    core_distances_ns: NotRequired[tuple[float | None, float | None]]  # farthest; before and after


class LinkRow(Row, total=False):
    """What a row has in addition where the link is shaped, choices are explained, or the
    array was cut."""

    explanation: str

    link_bits_per_s: int
    wire_bound_us: float  # what the link needs for wire_bytes: bytes * 8 * (1514/1448) / rate
    wire_ratio: float  # time_us / wire_bound_us
    split: str  # "1000 coalesced", "1000 scattered", "1000 calls", "3 in flight"


@final
class Skip(TypedDict):
    """In the place of a row: a contender that failed, and is left out from here on."""

    skipped: str  # "mpich skipped: why"


def wire_share(op: str, ranks: int) -> float:
    """Bytes that each rank must send (of a gather: that the root must receive) per byte of the
    array, in the bandwidth-optimal plan.

    The factor of bus bandwidth in nccl-tests, too: what shares an array out moves every part but
    the own one, all-reduce does that twice, a broadcast sends the array once.
    """
    if ranks == 1:
        return 1.0
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if op == "broadcast" else (ranks - 1) / ranks


def sent_share(op: str, ranks: int) -> float:
    """Of that, what the busiest sender sends: in a gather nobody sends more than a part."""
    return 1 / ranks if op == "gather" and ranks > 1 else wire_share(op, ranks)
