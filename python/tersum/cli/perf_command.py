"""``tersum perf``: measures collectives, in the columns of nccl-tests and some of our own."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import tersum
from tersum.cli import perf_table
from tersum.cli.byte_sizes import parse_bytes, size_range
from tersum.cli.command_error import CommandError
from tersum.cli.launch_place import Place, find_place
from tersum.cli.perf_binding import BINDINGS, cpus_by_rank
from tersum.cli.perf_contender import choose_libraries, without_gloo_behind
from tersum.cli.perf_options import (
    BARE,
    LIBRARIES,
    OPS,
    PLANS,
    REDOPS,
    TRANSPORTS,
    PerfOptions,
    Row,
    Skip,
)
from tersum.cli.perf_peers import DEFAULT_FOLDER
from tersum.cli.perf_placement import farthest_ns, measure_placement, placement_line
from tersum.cli.perf_rank import measure
from tersum.cli.perf_spawn import run_local_ranks
from tersum.cli.perf_worker import make_contenders, serve_counters
from tersum.cli.shaped_link import parse_rate
from tersum.cli.wired_topology import unshaped_latency_us, wired_text
from tersum.codecs import is_auto
from tersum.communicator import Communicator
from tersum.errors import TersumError
from tersum.store import TorchStore
from tersum.topologies import TopologyShape, read_topology, topology_text

_T = TypeVar("_T")

_DEFAULT_RANKS = 2
_DESCRIPTION = """\
Measures collectives: time, bus bandwidth, bytes on the wire, and the error against float64.
Contenders (every codec with every plan, and --compare) take turns within one run, so that their
ratios mean something. Started by torchrun, mpirun or srun it joins as that rank; otherwise it
starts --ranks processes on this machine. Exit status 1 if an element was wrong."""


def _checked(parse: Callable[[str], _T], valid: Callable[[_T], bool], rule: str) -> Any:
    def convert(text: str) -> _T:
        try:
            value = parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error) or f"bad value {text!r}") from None
        if not valid(value):
            raise argparse.ArgumentTypeError(f"{text!r} is out of range: {rule}")
        return value

    convert.__name__ = "number"
    return convert


_WHOLE = _checked(int, lambda value: value >= 0, "must be 0 or more")
_POSITIVE = _checked(int, lambda value: value >= 1, "must be 1 or more")


def _list_of(allowed: tuple[str, ...] | None) -> Callable[[str], tuple[str, ...]]:
    def convert(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            if not name or (allowed is not None and name not in allowed):
                choices = f"; choose from {', '.join(allowed)}" if allowed else ""
                raise argparse.ArgumentTypeError(f"bad name {name!r} in {text!r}{choices}")
        return names

    return convert


def add_parser(commands: Any) -> None:
    """Adds ``perf`` to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "perf",
        help="measure collectives",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what is measured")
    what.add_argument("--op", choices=OPS, default="all_reduce", help="default all_reduce")
    what.add_argument("--redop", choices=REDOPS, default="sum", help="default sum")
    what.add_argument("--dtype", choices=tersum.DTYPES, default="float32", help="default float32")
    what.add_argument(
        "--codec",
        type=_list_of(None),
        default=("int8/128",),
        metavar="LIST",
        help="codecs, e.g. exact,bf16,int8/128,auto,'auto:int8|int6+flatten' (default int8/128)",
    )
    what.add_argument(
        "--plan",
        type=_list_of(PLANS),
        default=("auto",),
        metavar="LIST",
        help=f"{','.join(PLANS)} (default auto)",
    )
    size = _checked(parse_bytes, lambda value: value >= 1, "must be at least one byte")
    what.add_argument("--min-bytes", type=size, default=64 << 10, metavar="N", help="default 64K")
    what.add_argument("--max-bytes", type=size, default=64 << 20, metavar="N", help="default 64M")
    factor = _checked(float, lambda value: value > 1, "must be above 1")
    what.add_argument("--factor", type=factor, default=4, metavar="F", help="default 4")
    _add_libraries(what)
    how = parser.add_argument_group("how")
    how.add_argument("--ranks", type=_POSITIVE, metavar="N", help="local processes (default 2)")
    how.add_argument("--transport", choices=TRANSPORTS, default="auto", help="default auto")
    how.add_argument("--streams", type=_WHOLE, default=0, metavar="N", help="TCP streams per pair")
    _add_wires(how)
    how.add_argument(
        "--bind",
        choices=BINDINGS,
        default="cores",
        help="cores (default): each rank, of any contender, keeps to cores of its own, or to "
        "hyper-threads where there are fewer cores, or shares CPUs evenly; none: as the kernel "
        "likes. Of ranks started here",
    )
    _add_counts(how)
    how.add_argument(
        "--in-place",
        action="store_true",
        help="all_reduce into its input, as gloo always does; default: into another array",
    )
    how.add_argument("--seed", type=_WHOLE, default=1, metavar="N", help="of the data; default 1")
    how.add_argument("--timeout-ms", type=_POSITIVE, default=120_000, metavar="N", help="per call")
    _add_cuts(how)
    how.add_argument("--store", metavar="URL", help="where ranks of a launcher meet")
    output = parser.add_argument_group("output")
    _add_choices(how, output)
    output.add_argument("--json", type=Path, metavar="FILE", help="also write the rows as JSON")
    output.add_argument("--plot", type=Path, metavar="FILE", help="also draw them (PNG)")
    parser.set_defaults(run=run)


def _add_counts(how: argparse._ArgumentGroup) -> None:
    how.add_argument("--iters", type=_POSITIVE, default=20, metavar="N", help="default 20")
    how.add_argument(
        "--batch",
        type=_POSITIVE,
        default=1,
        metavar="N",
        help="a time is that of N calls back to back, over N: the rate of calls, where ranks are "
        "early and late in turn; default 1",
    )
    how.add_argument("--warmup", type=_WHOLE, default=3, metavar="N", help="default 3")


def _add_cuts(how: argparse._ArgumentGroup) -> None:
    how.add_argument(
        "--coalesce",
        type=_WHOLE,
        default=0,
        metavar="N",
        help="cut the array into N tensors: one call after another, and all_reduce_coalesced",
    )
    how.add_argument(
        "--in-flight",
        type=_POSITIVE,
        default=1,
        metavar="K",
        help="also as K calls in flight together",
    )
    how.add_argument(
        "--metrics-port",
        type=_checked(int, lambda value: 1 <= value <= 65535, "must be 1 to 65535"),
        default=0,
        metavar="N",
        help="rank r serves its counters at http://127.0.0.1:N+r/metrics",
    )


def _add_wires(how: argparse._ArgumentGroup) -> None:
    how.add_argument(
        "--link",
        metavar="RATE",
        type=_checked(lambda text: (parse_rate(text), text)[1], lambda _: True, ""),
        help="one network namespace per rank, joined by links of e.g. 1gbit (root)",
    )
    how.add_argument(
        "--topology",
        metavar="NAME|FILE",
        help="one network namespace per host, wired as ring8, torus2x4, mesh4, star8, pair or a "
        "topology file says; --link gives named topologies' rate (default 1gbit; root)",
    )


def _add_choices(how: argparse._ArgumentGroup, output: argparse._ArgumentGroup) -> None:
    how.add_argument(
        "--max-rel-error",
        type=_checked(float, lambda value: value >= 0, "must be 0 or more"),
        default=0.0,
        metavar="E",
        help="what --codec auto may cost in accuracy; default 0: what int8/128 does",
    )
    output.add_argument(
        "--explain",
        action="store_true",
        help="tune first, and say below each row what a call left open took, and why",
    )
    output.add_argument(
        "--predict",
        action="store_true",
        help="tune first, so that all_reduces have a predicted time; on shaped links they have one "
        "by the cost model anyway",
    )


def _add_libraries(what: argparse._ArgumentGroup) -> None:
    what.add_argument(
        "--compare",
        type=_list_of((*LIBRARIES, "tersum-c++", BARE, "all")),
        default=(),
        metavar="LIST",
        help=f"other libraries: {','.join(LIBRARIES)}, or all; tersum-c++: without Python; "
        f"{BARE}: a plain TCP stream of each codec's bytes, both ways",
    )
    what.add_argument(
        "--peers",
        type=Path,
        default=Path(DEFAULT_FOLDER),
        metavar="FOLDER",
        help=f"their programs, built by scripts/bench --peers (default {DEFAULT_FOLDER})",
    )


def _spec_for_ranks(codec: str) -> str:
    """In its one form, but for what names a file: ranks are other processes and read it again."""
    if codec == "auto" or "table:" in codec or "kronecker:" in codec:
        return codec
    if is_auto(codec):
        return "auto:" + "|".join(tersum.auto_codecs(codec))
    return tersum.codec_info(codec).spec


def make_options(arguments: argparse.Namespace) -> PerfOptions:
    """The options of a parsed command line; CommandError (usage) for what cannot go together."""
    if arguments.min_bytes > arguments.max_bytes:
        raise CommandError(
            f"--min-bytes {arguments.min_bytes} is above --max-bytes {arguments.max_bytes}",
            exit_status=2,
        )
    if arguments.plot and importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--plot needs matplotlib: pip install matplotlib", exit_status=2)
    for codec in arguments.codec:
        if is_auto(codec) and codec != "auto" and not arguments.max_rel_error > 0:
            raise CommandError(
                f"--codec {codec} needs the error within which one of them is chosen; "
                "pass --max-rel-error 1e-2, say",
                exit_status=2,
            )
        try:
            if is_auto(codec):
                tersum.auto_codecs(codec)
            else:
                tersum.codec_info(codec)
        except TersumError as error:
            raise CommandError(f"--codec: {error}", exit_status=2) from None
    options = PerfOptions(
        op=arguments.op,
        redop=arguments.redop,
        dtype=arguments.dtype,
        codecs=tuple(_spec_for_ranks(codec) for codec in arguments.codec),
        plans=arguments.plan,
        transport=arguments.transport,
        sizes=tuple(size_range(arguments.min_bytes, arguments.max_bytes, arguments.factor)),
        iters=arguments.iters,
        batch=arguments.batch,
        warmup=arguments.warmup,
        seed=arguments.seed,
        in_place=arguments.in_place,
        compare=(),
        peers=str(arguments.peers),
        timeout_ms=arguments.timeout_ms,
        streams=arguments.streams,
        metrics_port=arguments.metrics_port,
        coalesce=arguments.coalesce,
        in_flight=arguments.in_flight,
        link_bits_per_s=(
            parse_rate(arguments.link) if arguments.link and not arguments.topology else 0
        ),
        explain=arguments.explain,
        predict=arguments.predict,
        max_rel_error=arguments.max_rel_error,
        topology=topology_text(arguments.topology or ""),
        topology_bits_per_s=parse_rate(arguments.link or "1gbit"),
    )
    if (options.coalesce or options.in_flight > 1) and (
        options.op != "all_reduce" or options.redop != "sum" or options.in_place
    ):
        raise CommandError(
            "--coalesce and --in-flight are for --op all_reduce --redop sum, not --in-place",
            exit_status=2,
        )
    if "one_shot" in options.plans and options.op != "all_reduce":
        raise CommandError(f"--plan one_shot is for all_reduce, not {options.op}", exit_status=2)
    return options


def _with_libraries(
    options: PerfOptions, arguments: argparse.Namespace, place: Place | None
) -> tuple[PerfOptions, list[str]]:
    """The options with the libraries that can be compared with, and why others cannot."""
    asked: list[str] = []
    for name in arguments.compare:
        asked += [one for one in (LIBRARIES if name == "all" else (name,)) if one not in asked]
    chosen, skipped = choose_libraries(
        asked,
        options,
        arguments.peers,
        arguments.ranks or _DEFAULT_RANKS,
        local=place is None,
        linked=bool(arguments.link or arguments.topology),
    )
    return dataclasses.replace(options, compare=tuple(chosen)), skipped


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints, writes; 1 if anything was wrong."""
    options = make_options(arguments)
    place = find_place(os.environ, arguments.store)
    options, skipped = _with_libraries(options, arguments, place)
    if place is None:
        ranks = arguments.ranks or _DEFAULT_RANKS
        if arguments.link and ranks < 2:
            raise CommandError("--link joins 2 ranks or more: add --ranks 2", exit_status=2)
        shape = _read_topology(arguments) if arguments.topology else None
        if shape:
            ranks = shape["ranks"]
            wires = wired_text(options.topology, arguments.link or "1gbit")
            options = dataclasses.replace(options, wires=wires)
            if latency_us := unshaped_latency_us(shape):
                skipped.append(
                    f"a latency of {latency_us:.0f} us is described but not shaped: ranks and "
                    "predictions are given 20"
                )
        if arguments.bind == "cores":
            options = dataclasses.replace(options, cpus=cpus_by_rank(ranks))
        rows: Iterator[Row | Skip] = run_local_ranks(options, ranks, arguments.link, shape)
        return _report(rows, options, ranks, arguments, skipped)
    _check_place(place, arguments)
    try:
        with (
            serve_counters(options, place.rank),
            _join(place, options) as group,
            without_gloo_behind(),
            tempfile.TemporaryDirectory() as folder,
        ):
            contenders = make_contenders(group, options, _meet(place, folder), "")
            rows = measure(group, contenders, options)
            if group.rank == 0:
                return _report(rows, options, group.size, arguments, skipped)
            return int(sum(row["wrong"] for row in rows if "wrong" in row) > 0)
    except TersumError as error:
        raise CommandError(f"rank {place.rank}: {error}") from error


def _check_place(place: Place, arguments: argparse.Namespace) -> None:
    if arguments.ranks not in (None, place.size):
        raise CommandError(
            f"{place.launcher} started {place.size} ranks but --ranks says {arguments.ranks}: "
            "leave --ranks away",
            exit_status=2,
        )
    if arguments.link or arguments.topology:
        option = "--topology" if arguments.topology else "--link"
        raise CommandError(
            f"{option} shapes processes that tersum starts itself, not those of {place.launcher}",
            exit_status=2,
        )
    if arguments.compare and place.launcher != "torchrun":
        raise CommandError(
            f"--compare gloo under {place.launcher} is not supported: use torchrun, or --ranks",
            exit_status=2,
        )


def _read_topology(arguments: argparse.Namespace) -> TopologyShape:
    try:
        shape = read_topology(arguments.topology, rate=arguments.link or "1gbit")
    except TersumError as error:
        raise CommandError(f"--topology: {error}", exit_status=2) from None
    if arguments.ranks not in (None, shape["ranks"]):
        raise CommandError(
            f"--topology {shape['name']} has {shape['ranks']} ranks but --ranks says "
            f"{arguments.ranks}: leave --ranks away",
            exit_status=2,
        )
    return shape


def _join(place: Place, options: PerfOptions) -> Communicator:
    store: Any = place.store
    if store.startswith("torchelastic://"):
        dist: Any = importlib.import_module("torch.distributed")
        host, _, port = store.removeprefix("torchelastic://").rpartition(":")
        store = TorchStore(
            dist.TCPStore(host.strip("[]"), int(port), place.size, is_master=False),
            prefix="tersum-perf/",
            host=host.strip("[]"),
        )
    return Communicator(
        place.rank,
        place.size,
        store,
        name="perf",
        timeout_ms=options.timeout_ms,
        transport=options.transport,
        streams=options.streams,
    )


def _meet(place: Place, folder: str) -> str:
    return "" if place.launcher == "torchrun" else os.path.join(folder, "gloo")


def _report(
    rows: Iterable[Row | Skip],
    options: PerfOptions,
    ranks: int,
    arguments: argparse.Namespace,
    skipped: list[str],
) -> int:
    print(perf_table.heading(options, ranks, arguments.link), flush=True)
    for reason in skipped:
        print(f"# {reason}", flush=True)
    before = _look_at_placement(ranks)
    done: list[Row] = []
    for row in rows:
        if "wrong" not in row:
            print(f"# {row['skipped']}", flush=True)
            continue
        print(perf_table.line(row, options.redop), flush=True)
        done.append(row)
    after = _look_at_placement(ranks)
    for row in done:
        row["core_distances_ns"] = (before, after)
    wrong = sum(row["wrong"] for row in done)
    print(perf_table.footer(done, wrong))
    if arguments.json:
        _write(arguments.json, lambda: arguments.json.write_text(_dump(done), encoding="utf-8"))
    if arguments.plot:
        from tersum.cli import perf_plot

        _write(arguments.plot, lambda: perf_plot.draw(done, arguments.plot, arguments.link))
    return 1 if wrong else 0


def _look_at_placement(ranks: int) -> float | None:
    """Prints it; a single rank depends on none."""
    if ranks == 1:
        return None
    placement = measure_placement()
    print(placement_line(placement), flush=True)
    return farthest_ns(placement)


def _dump(rows: list[Row]) -> str:
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    return f"[\n{lines}\n]\n"


def _write(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
