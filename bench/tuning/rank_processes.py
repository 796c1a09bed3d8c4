"""Ranks as processes of their own, for benchmarks."""

from __future__ import annotations

import multiprocessing
import queue
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tersum.cli.perf_binding import Cpus, cpus_by_rank


def cpus_of_two() -> tuple[Cpus, ...]:
    """Those of two ranks, each with its own. Ends the program where there are none."""
    cpus = cpus_by_rank(2)
    if not cpus or cpus[0] == cpus[1]:
        sys.exit("two CPUs are needed, and leave to bind ranks to them")
    return cpus


def run_ranks(ranks: int, main: Callable[..., None], arguments: tuple[Any, ...], count: int) -> Any:
    """Runs ``main(rank, *arguments, store, results)`` in ``ranks`` new processes and returns the
    first ``count`` things that they put into the queue ``results``. ``store`` is that of a new
    group. Ends the program if a rank fails."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{Path(folder) / 'store'}"
        processes = [
            context.Process(target=main, args=(rank, *arguments, store, results))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        got: list[Any] = []
        while len(got) < count:
            try:
                got.append(results.get(timeout=1))
            except queue.Empty:
                if any(process.exitcode not in (None, 0) for process in processes):
                    sys.exit("a rank failed")
        for process in processes:
            process.join()
    return got
