"""``tersum plan``: what every plan would cost on a described topology, and which one wins."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tersum.cli.byte_sizes import format_bytes, parse_bytes
from tersum.cli.command_error import CommandError
from tersum.cli.perf_options import OPS
from tersum.cli.plan_study import Prediction, Study, study_plans


def add_parser(commands: Any) -> None:
    """Adds ``plan`` to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "plan",
        help="predict the time of every plan on a topology",
        description=(
            "Predicts what a collective would take with every plan on a described topology. "
            "Nothing is measured but, if you say so, the codec: docs/plans.md has the model."
        ),
    )
    parser.add_argument(
        "--topology",
        required=True,
        help="pair, ringN, meshN, starN, torusAxB, torusAxBxC, or a file (docs/topologies.md)",
    )
    parser.add_argument("--bytes", required=True, help="the array's bytes on each rank: 64K, 16M")
    parser.add_argument("--op", choices=OPS, default=OPS[0], help="default: all_reduce")
    parser.add_argument("--codec", default="int8", help="exact, bf16, int8/128, … (default: int8)")
    parser.add_argument("--dtype", default="float32", help="default: float32")
    parser.add_argument("--rate", default="1gbit", help="of every link, unless a file says so")
    parser.add_argument("--latency-us", type=float, default=20, help="of every link (default: 20)")
    parser.add_argument("--cores", type=int, default=1, help="of every machine (default: 1)")
    parser.add_argument(
        "--one-machine",
        action="store_true",
        help="all hosts share the cores of one machine, as in tersum perf --topology",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="with the codec's speed on this machine, not the one of docs/plans.md",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the study; 0 when at least one plan fits."""
    try:
        size = parse_bytes(arguments.bytes)
    except ValueError as error:
        raise CommandError(f"--bytes: {error}", exit_status=2) from error
    study = study_plans(
        _topology_text(arguments.topology),
        op=arguments.op,
        size=size,
        codec=arguments.codec,
        dtype=arguments.dtype,
        rate=arguments.rate,
        latency_us=arguments.latency_us,
        cores=arguments.cores,
        one_machine=arguments.one_machine,
        measure=arguments.measure,
    )
    if arguments.json:
        print(json.dumps(study.as_json(), indent=2))
    else:
        print(_table(study, arguments.codec))
    return 0 if study.fitting else 1


def _topology_text(topology: str) -> str:
    """The text of a file, or the name as it is."""
    path = Path(topology)
    if not path.suffix and not path.is_file():
        return topology
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read the topology {topology}: {error}") from error
    # Text that is not even an object must not be taken for a name.
    if not text.lstrip().startswith("{"):
        raise CommandError(f"{topology} is no topology: line 1: it must be a JSON object")
    return text


def format_seconds(seconds: float) -> str:
    """``0.00123`` as ``"1.23 ms"``."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _table(study: Study, codec: str) -> str:
    lines = [
        f"# {study.op} of {format_bytes(study.size)} on {study.topology}: {study.ranks} ranks, "
        f"{codec} sends {format_bytes(study.wire_bytes)}",
        f"# bound by the links alone: {format_seconds(study.bound_s)}; the codec's speed is "
        + ("this machine's" if study.measured else "a Zen 5 core's (docs/plans.md)"),
        "",
        f"{'plan':<19} {'time':>9} {'x bound':>9} {'wire':>9} {'cores':>9} {'memory':>9}"
        f" {'chain':>9}{'hops':>6}  decides",
    ]
    lines += [_row(plan, study.bound_s) for plan in study.fitting]
    lines += [f"{plan.plan:<19}does not fit: {plan.misfit}" for plan in study.misfits]
    return "\n".join([*lines, "", study.verdict()])


def _row(plan: Prediction, bound_s: float) -> str:
    ratio = f"{plan.time_s / bound_s:.3f}" if bound_s > 0 else "-"
    columns = (plan.wire_s, plan.cpu_s, plan.memory_s, plan.chain_s)
    return (
        f"{plan.plan:<19} {format_seconds(plan.time_s):>9} {ratio:>9}"
        + "".join(f" {format_seconds(value) if value > 0 else '-':>9}" for value in columns)
        + f"{plan.hops:>6}  {plan.dominant}"
    )
