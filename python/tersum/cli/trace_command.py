"""``tersum trace``: puts the traces of several processes on one time line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tersum.cli.command_error import CommandError

_DESCRIPTION = """\
Merges the files that TERSUM_TRACE made, one per process, into one for Perfetto or chrome://tracing.
Processes of one host share a clock; those of several hosts are lined up by their wall clocks, so
no better than these agree. Time 0 is the first event."""

Event = dict[str, Any]


class Clock(NamedTuple):
    """What a file says about the clock of its times."""

    boot: str
    monotonic_ns: int
    wall_ns: int
    dropped: int


class Trace(NamedTuple):
    """One process's events."""

    path: Path
    clock: Clock
    events: list[Event]


def add_parser(commands: Any) -> None:
    """Adds ``trace`` to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "trace", help="merge traces of several processes", description=_DESCRIPTION
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    merge_parser = actions.add_parser(
        "merge",
        help="write one trace of several",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    merge_parser.add_argument("out", type=Path, metavar="OUT")
    merge_parser.add_argument("inputs", type=Path, nargs="+", metavar="IN")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Merges and says what came together."""
    traces = [read_trace(path) for path in arguments.inputs]
    events = merge(traces)
    text = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    try:
        arguments.out.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {arguments.out}: {error.strerror}") from error
    dropped = sum(trace.clock.dropped for trace in traces)
    hosts = len({trace.clock.boot for trace in traces})
    print(f"{arguments.out}: {len(events)} events of {len(traces)} processes on {hosts} hosts")
    if dropped:
        print(f"{dropped} older events had been dropped: TERSUM_TRACE_EVENTS keeps more")
    return 0


def read_trace(path: Path) -> Trace:
    """The events of one file; CommandError if it is none of tersum's."""
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{path} is no trace: {error}") from error
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise CommandError(f"{path} is no trace: it holds no list of events")
    for event in events:
        if event.get("name") == "tersum_clock":
            try:
                clock = Clock(**event["args"])
            except (KeyError, TypeError) as error:
                raise CommandError(f"{path} has an unreadable clock: {error}") from error
            return Trace(path, clock, events)
    raise CommandError(f"{path} was not written by TERSUM_TRACE (or is a merged trace already)")


def merge(traces: Sequence[Trace]) -> list[Event]:
    """All events on the clock of the first trace, from 0 on, with a process number for each."""
    reference = traces[0].clock
    taken: set[int] = set()
    merged: list[Event] = []
    for trace in traces:
        shift_us = 0.0
        if trace.clock.boot != reference.boot:
            ahead_ns = (trace.clock.wall_ns - trace.clock.monotonic_ns) - (
                reference.wall_ns - reference.monotonic_ns
            )
            shift_us = ahead_ns / 1000
        process = _free_number(next(iter(trace.events), {}).get("pid", 0), taken)
        for event in trace.events:
            if event.get("name") == "tersum_clock":
                continue
            moved = {**event, "pid": process}
            if "ts" in event:
                moved["ts"] = event["ts"] + shift_us
            merged.append(moved)
    merged.extend(list(_deliveries(merged)))
    first = min((event["ts"] for event in merged if "ts" in event), default=0.0)
    for event in merged:
        if "ts" in event:
            event["ts"] = round(event["ts"] - first, 3)
    return merged


def _free_number(wanted: int, taken: set[int]) -> int:
    """``wanted``, or where another host has a process of that number, the next free one."""
    while wanted in taken:
        wanted += 1
    taken.add(wanted)
    return wanted


def _message(arguments: Event, sender: int, receiver: int) -> tuple[Any, ...]:
    names = ("group", "call", "phase", "chunk", "slice")
    return (sender, receiver, *(arguments[name] for name in names))


def _deliveries(events: Iterable[Event]) -> Iterator[Event]:
    """What no process sees alone: each slice's way from one rank's queue to the other rank."""
    queued: dict[tuple[Any, ...], float] = {}
    arrived: list[Event] = []
    for event in events:
        if event["name"] == "wire" and event["ph"] == "b":
            arguments = event["args"]
            queued[_message(arguments, arguments["rank"], arguments["peer"])] = event["ts"]
        elif event["name"] == "arrived":
            arrived.append(event)
    for event in arrived:
        arguments = event["args"]
        message = _message(arguments, arguments["peer"], arguments["rank"])
        begin = queued.get(message)
        if begin is None or begin > event["ts"]:  # not in the ring any more, or clocks apart
            continue
        span = {
            "name": f"delivery from rank {arguments['peer']}",
            "cat": "delivery",
            "id": "delivery " + ".".join(str(part) for part in message),
            "pid": event["pid"],
            "tid": event["tid"],
        }
        yield {**span, "ph": "b", "ts": begin, "args": arguments}
        yield {**span, "ph": "e", "ts": event["ts"]}
