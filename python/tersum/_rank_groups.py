"""Groups whose ranks are threads of this process, for those who want to know what a sum comes to.

Thread safety: used by one thread; the ranks' threads are its own.
"""

from __future__ import annotations

import concurrent.futures
from types import TracebackType

import numpy as np
import numpy.typing as npt

from tersum.communicator import Communicator
from tersum.store import MemoryStore


class RankGroups:
    """One group for each number of ranks asked for; a context manager that closes them."""

    def __init__(self) -> None:
        self._groups: dict[int, list[Communicator]] = {}
        self._pools: dict[int, concurrent.futures.ThreadPoolExecutor] = {}

    def all_reduce(
        self, inputs: npt.NDArray[np.float32], codec: str, site: str
    ) -> npt.NDArray[np.float32]:
        """What every rank gets when rank r hands in ``inputs[r]``: two-step, with tersum's own
        collective. ``site`` is the name of the place that calls, for codecs that learn."""
        ranks = len(inputs)
        groups = self._groups.get(ranks)
        if groups is None:
            groups = self._join(ranks)

        def call(rank: int) -> npt.NDArray[np.float32]:
            group: Communicator = groups[rank]
            return group.all_reduce(inputs[rank], codec=codec, plan="two_step", site=site)

        pool = self._pools[ranks]
        calls = [pool.submit(call, rank) for rank in range(ranks)]
        results = [each.result() for each in calls]
        return results[0]

    def _join(self, ranks: int) -> list[Communicator]:
        pool = self._pools[ranks] = concurrent.futures.ThreadPoolExecutor(ranks)
        store = MemoryStore()
        made = [pool.submit(Communicator, rank, ranks, store) for rank in range(ranks)]
        self._groups[ranks] = [each.result() for each in made]
        return self._groups[ranks]

    def __enter__(self) -> RankGroups:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for groups in self._groups.values():
            for group in groups:
                group.close()
        for pool in self._pools.values():
            pool.shutdown()
