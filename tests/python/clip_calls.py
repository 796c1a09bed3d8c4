"""Calls with +clip:learned on thread ranks, for the tests of it: results, states and bytes."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

from simulate_codecs import make_data, relative_error

Run = Callable[..., list[Any]]
Data = np.ndarray[Any, Any]
SEED = 3011
#: Of a saved site: its key, no channels, the key of its calls, and two clips.
SAVED = struct.Struct("<QQQ ddqQQ ddqQQ")


def saved_sites(saved: bytes) -> list[tuple[Any, ...]]:
    """What docs/wire-format.md says is in them, where nothing else is."""
    assert saved[:8] == b"tersumF1"
    (sites,) = struct.unpack_from("<Q", saved, 8)
    assert len(saved) == 16 + sites * SAVED.size + 8
    found = [SAVED.unpack_from(saved, 16 + i * SAVED.size) for i in range(sites)]
    assert all(site[1] == 0 for site in found)
    return found


def is_held(saved: bytes, replicated: bool = False) -> bool:
    """Does the next call of the one site travel without scales of blocks?"""
    ((*_, of_contributions, _, _, _, _, of_sums),) = saved_sites(saved)
    return bool(of_contributions) and (replicated or bool(of_sums))


def agreed(results: list[Any]) -> Any:
    """The ranks' common result."""
    first = results[0]
    if isinstance(first, (list, tuple)):
        return [agreed([result[i] for result in results]) for i in range(len(first))]
    if isinstance(first, np.ndarray):
        assert all(result.tobytes() == first.tobytes() for result in results)
    else:
        assert all(result == first for result in results)
    return first


def sums_of(
    run_group: Run, codec: str, calls: list[Data], op: str = "sum", plan: str = "two_step"
) -> tuple[list[Data], list[bytes], list[int]]:
    """Results, states after, and bytes that rank 0 sent, call by call."""

    def body(group: tersum.Communicator) -> tuple[list[Data], list[bytes], int, list[int]]:
        results, states, sent = [], [], []
        for data in calls:
            before = group.stats().wire_bytes_sent
            results.append(group.all_reduce(data[group.rank], op, codec=codec, plan=plan))
            states.append(group.save_flatten())
            sent.append(group.stats().wire_bytes_sent - before)
        return results, states, sent

    ranks = run_group(len(calls[0]), body)
    results, states = agreed([rank[:2] for rank in ranks])
    return results, states, ranks[0][2]


def sums_in_flight(run_group: Run, codec: str, calls: list[Data]) -> list[Data]:
    """Results of the calls, started together on three ranks at a site and then again at another;
    while they are in flight, nobody can save what they learn."""
    refused = threading.Barrier(3)

    def together(group: tersum.Communicator) -> list[Data]:
        works = [group.all_reduce_async(d[group.rank], codec=codec, site="a") for d in calls]
        if group.rank == 2:
            refused.wait(20)  # so long as rank 2 has not entered, no call for "b" can end
        works += [group.all_reduce_async(d[group.rank], codec=codec, site="b") for d in calls]
        if group.rank != 2:
            with pytest.raises(tersum.InvalidArgumentError, match="in flight"):
                group.save_flatten()
            refused.wait(20)
        return [work.result() for work in works]

    results: list[Data] = agreed(run_group(3, together))
    return results


def errors_of(results: list[Data], calls: list[Data]) -> list[float]:
    return [relative_error(got, data) for got, data in zip(results, calls, strict=True)]


def calls_of(kind: str, ranks: int, count: int, calls: int = 12) -> list[Data]:
    return [make_data(kind, ranks, count, SEED + call) for call in range(calls)]
