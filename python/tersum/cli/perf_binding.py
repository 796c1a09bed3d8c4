"""Which CPUs each local rank of ``tersum perf`` keeps to, as under a launcher that binds.

Left alone, ranks that sleep and wake together may share one core for as long as a measurement
lasts, while others idle: some kernels pack threads, to save power or the cores of a host. Every
contender of a run is bound alike.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

BINDINGS = ("cores", "none")

Cpus = tuple[int, ...]

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cpus_by_rank(ranks: int, folder: str = _TOPOLOGY) -> tuple[Cpus, ...]:
    """As many of the cores that this process may use for each rank, in the order of the cores:
    whole cores where there are enough of them, else hyper-threads; ranks that outnumber those,
    too, share them, neighbours one, as evenly as can be. Empty where the system lets nobody
    bind. ``folder``: where the kernel lists the hyper-threads of a core."""
    cpus = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:
        return ()
    cores = list(_cores(cpus, folder).values())
    if len(cores) < ranks:
        cores = [[cpu] for cpu in cpus]
    if len(cores) < ranks:
        return tuple((cpus[rank * len(cpus) // ranks],) for rank in range(ranks))
    # Those that are left over stay idle: the slowest rank's time counts.
    each = len(cores) // ranks
    shares = [cores[rank * each : (rank + 1) * each] for rank in range(ranks)]
    return tuple(tuple(sorted(cpu for core in share for cpu in core)) for share in shares)


def _cores(cpus: Sequence[int], folder: str) -> dict[str, list[int]]:
    """The CPUs by their cores; each is one of its own where the kernel does not say."""
    cores: dict[str, list[int]] = {}
    for cpu in cpus:
        name = f"cpu {cpu}"
        with contextlib.suppress(OSError):
            name = Path(folder.format(cpu)).read_text(encoding="ascii").strip() or name
        cores.setdefault(name, []).append(cpu)
    return cores


def binding_text(cpus: Sequence[Cpus]) -> str:
    """One CPU list a rank, as taskset writes them: ``0-3 | 4-7``."""
    return " | ".join(_ranges(share) for share in cpus)


def _ranges(cpus: Cpus) -> str:
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@contextlib.contextmanager
def on_all_cpus(cpus: Sequence[Cpus]) -> Iterator[None]:
    """Processes that this thread starts meanwhile may use the CPUs of all ranks, as their own
    binding needs."""
    if not cpus:
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu for share in cpus for cpu in share})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
