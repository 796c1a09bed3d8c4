"""Groups whose ranks are threads of this process, for those who want to know what a sum comes to.

Thread safety: used by one thread; the ranks' threads are its own.
"""

from __future__ import annotations

import concurrent.futures
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tersum.communicator import Communicator
from tersum.store import MemoryStore


class _Group(NamedTuple):
    pool: concurrent.futures.ThreadPoolExecutor  # a thread per rank
    ranks: list[Communicator]


class RankGroups:
    """One group for each number of ranks asked for."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}

    def all_reduce(
        self, inputs: npt.NDArray[np.float32], codec: str, site: str
    ) -> npt.NDArray[np.float32]:
        """What every rank gets when rank r hands in ``inputs[r]``: two-step, with tersum's own
        collective. ``site`` is the name of the place that calls, for codecs that learn."""
        if len(inputs) not in self._groups:
            self._groups[len(inputs)] = _join(len(inputs))
        group = self._groups[len(inputs)]

        def call(rank: Communicator, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            return rank.all_reduce(x, codec=codec, plan="two_step", site=site)

        result, *_ = list(group.pool.map(call, group.ranks, inputs))
        return result

    def close(self) -> None:
        """Ends all groups and their threads."""
        for group in self._groups.values():
            for rank in group.ranks:
                rank.close()
            group.pool.shutdown()


def _join(ranks: int) -> _Group:
    pool = concurrent.futures.ThreadPoolExecutor(ranks)
    store = MemoryStore()
    return _Group(pool, list(pool.map(lambda rank: Communicator(rank, ranks, store), range(ranks))))
