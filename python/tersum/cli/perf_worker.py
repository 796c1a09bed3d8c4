"""One local rank of ``tersum perf --ranks N``: a child process; its parent talks to it by pipes.

Argument: one JSON object. Standard output of rank 0: one JSON row per line. Standard input stays
open as long as the parent lives; when it closes, the rank ends, so that no parent's death leaves
ranks behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from typing import NoReturn

from tersum.cli.command_error import CommandError
from tersum.cli.perf_bare import bare_contenders
from tersum.cli.perf_contender import (
    Contender,
    gloo_contender,
    peer_contenders,
)
from tersum.cli.perf_options import BARE, PerfOptions
from tersum.cli.perf_rank import measure
from tersum.cli.perf_split import contenders_of
from tersum.communicator import Communicator
from tersum.errors import TersumError
from tersum.metrics import serve_metrics


def make_contenders(
    group: Communicator, options: PerfOptions, meet: str, address: str
) -> list[Contender]:
    """All that is measured; ``meet`` is a file that gloo's ranks find each other by, ``address``
    where rank 0 can be reached."""
    contenders = contenders_of(group, options)
    for name in options.compare:
        if name == "gloo":
            contenders.append(gloo_contender(group, options, meet))
        elif name == BARE:
            contenders += bare_contenders(group, options, address)
        else:
            contenders += peer_contenders(group, name, options)
    return contenders


def serve_counters(options: PerfOptions, rank: int) -> contextlib.AbstractContextManager[object]:
    """``--metrics-port``: this rank's counters over HTTP, as long as the context lasts."""
    if options.metrics_port == 0:
        return contextlib.nullcontext()
    return serve_metrics(options.metrics_port + rank)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> int:
    """Runs the rank that the argument describes."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = json.loads(sys.argv[1])
    options = PerfOptions.from_json(job["options"])
    try:
        with (
            serve_counters(options, job["rank"]),
            Communicator(
                job["rank"],
                job["size"],
                job["store"],
                name="perf",
                timeout_ms=options.timeout_ms,
                listen=job["listen"],
                transport=options.transport,
                streams=options.streams,
                topology=options.wires,
            ) as group,
        ):
            contenders = make_contenders(group, options, job["meet"], job["root"])
            for row in measure(group, contenders, options):
                if group.rank == 0:
                    print(json.dumps(row), flush=True)
    except (TersumError, CommandError) as error:
        print(f"tersum perf: rank {job['rank']}: {error}", file=sys.stderr)
        return 1
    return 0


def run_child() -> NoReturn:
    """Runs the rank and ends the process, without the interpreter's shutdown: torch's threads may
    outlive it, and the one that waits for standard input holds its lock, which would abort it."""
    try:
        status = main()
    except BaseException:  # whatever it is, said in full
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status)
