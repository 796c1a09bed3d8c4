"""What is measured: one library with one setting, behind one ``call``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tersum.cli.command_error import CommandError
from tersum.cli.perf_data import Values
from tersum.cli.perf_options import BARE, PerfOptions, sent_share
from tersum.cli.perf_peers import PEERS, PeerJob, Turns, why_not
from tersum.codecs import is_auto
from tersum.communicator import Communicator


class Contender(NamedTuple):
    """A library with a setting. ``prepare(x, out)`` returns the call that is timed; ``wire_bytes``
    reads what this rank has sent so far (None: cannot be read, the optimal volume is reported).
    With ``turns`` it runs in processes of its own and ``prepare`` is not used. Only one that
    ``sums`` has a result to be checked."""

    library: str
    codec: str
    plan: str
    transport: str
    prepare: Callable[[Values, Values], Callable[[], object]]
    wire_bytes: Callable[[], int] | None
    turns: Turns | None = None
    split: str = ""  # how the array was cut into calls; "": not at all
    sums: bool = True


def tersum_contenders(group: Communicator, options: PerfOptions) -> list[Contender]:
    """Every codec with every plan."""
    return [
        Contender(
            "tersum",
            codec,
            plan,
            options.transport,
            _tersum_call(group, options, codec, plan),
            lambda: group.stats().wire_bytes_sent,
        )
        for plan in options.plans
        for codec in options.codecs
    ]


def allowed_error(codec: str, options: PerfOptions) -> float:
    """What a contender's calls pass as ``max_rel_error``: only a codec left open is held to it, and
    of what only moves between ranks no call takes one."""
    takes_error = is_auto(codec) and options.op not in ("all_to_all", "gather", "scatter")
    return options.max_rel_error if takes_error else 0.0


def _tersum_call(
    group: Communicator, options: PerfOptions, codec: str, plan: str
) -> Callable[[Values, Values], Callable[[], object]]:
    error = allowed_error(codec, options)

    def prepare(x: Values, out: Values) -> Callable[[], object]:
        if options.op == "all_reduce" and options.in_place:
            np.copyto(out, x)
            return lambda: group.all_reduce(
                out, options.redop, codec, plan, out=out, max_rel_error=error, site="perf"
            )
        if options.op == "all_reduce":
            return lambda: group.all_reduce(
                x, options.redop, codec, plan, out=out, max_rel_error=error, site="perf"
            )
        if options.op == "reduce_scatter":
            return lambda: group.reduce_scatter(
                x, options.redop, codec, plan, out=out, max_rel_error=error, site="perf"
            )
        return _move(group, options.op, x, codec, plan, {"out": out, "max_rel_error": error})

    return prepare


def _move(
    group: Communicator, op: str, x: Values, codec: str, plan: str, to: dict[str, Any]
) -> Callable[[], object]:
    """A call that sums nothing; rank 0 is the root."""
    if op == "all_gather":
        return lambda: group.all_gather(x, codec, plan, **to)
    if op == "broadcast":
        return lambda: group.broadcast(x, 0, codec, plan, **to)
    out = to["out"]
    if op == "all_to_all":
        return lambda: group.all_to_all(x, codec, plan, out=out)
    if op == "gather":
        return lambda: group.gather(x, 0, codec, plan, out=out)
    return lambda: group.scatter(x, 0, codec, plan, out=out)


def choose_libraries(
    names: Sequence[str],
    options: PerfOptions,
    folder: Path,
    ranks: int,
    *,
    local: bool,
    linked: bool,
) -> tuple[list[str], list[str]]:
    """Of the libraries to compare with, those that can run here, and for the others lines that say
    why not. ``local``: ``ranks`` are started by this program; ``linked``: on shaped links or a
    topology's."""
    chosen: list[str] = []
    skipped: list[str] = []
    for name in names:
        if name == "gloo":
            reason = _why_not_gloo(options)
        elif name == BARE:
            reason = _why_not_bare(options, ranks, local=local)
        else:
            reason = why_not(name, folder, options, local and not linked)
        if reason:
            skipped.append(f"{name} skipped: {reason}")
        else:
            chosen.append(name)
    return chosen, skipped


def _why_not_gloo(options: PerfOptions) -> str:
    if importlib.util.find_spec("torch") is None:
        return "no torch here: pip install torch"
    if options.redop == "avg":
        return "it cannot average: use --redop sum"
    if options.transport == "shm":
        return "it has no shared memory"
    if options.topology:
        return "its ranks are not on these wires: use --link"
    return ""


def _why_not_bare(options: PerfOptions, ranks: int, *, local: bool) -> str:
    if not local:
        return "it is for ranks that tersum perf starts: use --ranks 2"
    if ranks != 2:
        return "it is a stream between two ranks: use --ranks 2"
    if options.topology:
        return "a topology's wires are not one stream's: use --link"
    if options.op != "all_reduce":
        return "it sends what an all_reduce of two ranks does: use --op all_reduce"
    if options.transport != "tcp" and options.link_bits_per_s == 0:
        return (
            "it is a TCP stream, and ranks of one host share memory: use --transport tcp or --link"
        )
    return ""


def peer_contenders(group: Communicator, name: str, options: PerfOptions) -> list[Contender]:
    """A library in processes of its own, which rank 0 starts; tersum's own program once per
    codec."""
    # A library chooses its fastest way by itself where the user leaves the choice to tersum.
    transport = "tcp" if options.transport == "tcp" else "shm"
    codecs = options.codecs if name == "tersum-c++" else ("exact",)

    def turns(codec: str) -> Turns:
        def start() -> PeerJob:
            folder = Path(options.peers)
            timeout_s = options.timeout_ms / 1000
            return PeerJob(
                PEERS[name], folder, group.size, transport, codec, timeout_s, options.cpus
            )

        return Turns(start if group.rank == 0 else None, options.in_place)

    return [
        Contender(name, codec, "default", transport, _no_call, None, turns(codec))
        for codec in codecs
    ]


def _no_call(x: Values, out: Values) -> Callable[[], object]:
    raise NotImplementedError("calls of other processes are not made here")


@contextlib.contextmanager
def without_gloo_behind() -> Iterator[None]:
    """Ends gloo's group with the context, if there is one. Its threads would otherwise meet the
    interpreter's shutdown, which aborted one run of a dozen."""
    try:
        yield
    finally:
        dist: Any = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


def gloo_contender(group: Communicator, options: PerfOptions, meet: str) -> Contender:
    """torch.distributed's gloo over the same ranks, which meet in the new file ``meet``, or where
    torchrun's environment says if that is empty."""
    import torch

    dist: Any = importlib.import_module("torch.distributed")
    if not dist.is_gloo_available():
        raise CommandError(f"torch {torch.__version__} here was built without gloo")
    if not dist.is_initialized():
        if meet:
            store = dist.FileStore(meet, group.size)
            dist.init_process_group("gloo", store=store, rank=group.rank, world_size=group.size)
        else:
            dist.init_process_group("gloo")
    ops = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}

    def tensor(values: Values) -> Any:
        if options.dtype == "bfloat16":
            return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(values)

    def prepare(x: Values, out: Values) -> Callable[[], object]:
        source, target = tensor(x), tensor(out)

        # gloo works in place; what a caller must copy to keep its input is not counted against it,
        # so the timed calls reduce the output of the call before (values grow; time does not).
        if options.op == "all_reduce":
            target.copy_(source)
            return lambda: dist.all_reduce(target, ops[options.redop])
        if options.op == "all_gather":
            return lambda: dist.all_gather_into_tensor(target, source)
        if options.op == "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(target, source, ops[options.redop])
        if options.op == "all_to_all":
            return lambda: dist.all_to_all_single(target, source)
        parts = list((target if options.op == "gather" else source).chunk(group.size))
        if options.op == "gather":
            return lambda: dist.gather(source, parts if group.rank == 0 else None)
        if options.op == "scatter":
            return lambda: dist.scatter(target, parts if group.rank == 0 else None)
        target.copy_(source)
        return lambda: dist.broadcast(target, 0)

    return Contender("gloo", "exact", "default", "tcp", prepare, None)


def optimal_wire_bytes(options: PerfOptions, array_bytes: int, ranks: int) -> int:
    """What a bandwidth-optimal exact plan sends per rank."""
    return 0 if ranks == 1 else round(array_bytes * sent_share(options.op, ranks))
