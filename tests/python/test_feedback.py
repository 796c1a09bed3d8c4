"""+feedback: what a call's coding loses is given back in the next, on every plan.

Reference line: section 3, Global-QSGD: below 3 bits neither rounding saves a training, feedback
does. What that rests on is held here, the training itself in test_feedback_training.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tersum

Run = Callable[..., list[Any]]
Data = np.ndarray[Any, Any]
SEED = 515
COUNT = 5003
CALLS = 12
PLANS = ("two_step", "ring", "one_shot", "tree", "halving_doubling", "bidirectional_ring")


def data_of(call: int, ranks: int, count: int = COUNT) -> Data:
    random = np.random.default_rng([SEED, call])
    return random.standard_normal((ranks, count)).astype(np.float32)


def owed_of(saved: bytes) -> list[Data]:
    """What docs/wire-format.md says is in them: the errors of each site."""
    assert saved[:8] == b"tersumE1"
    (sites,) = struct.unpack_from("<Q", saved, 8)
    at, found = 16, []
    for _ in range(sites):
        _key, _layout, values = struct.unpack_from("<QQQ", saved, at)
        found.append(np.frombuffer(saved, "<f4", values, at + 24))
        at += 24 + 4 * values
    assert at + 8 == len(saved)
    return found


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_the_results_are_off_by_what_is_owed(
    run_group: Run, plan: str, ranks: int, op: str
) -> None:
    """Nothing is lost for good, whoever coded it and how often."""

    def body(group: tersum.Communicator) -> tuple[Data, list[Data]]:
        total = np.zeros(COUNT)
        for call in range(CALLS):
            mine = data_of(call, ranks)[group.rank]
            total += group.all_reduce(mine, op, "int2+feedback", plan, site="x")
        return total, owed_of(group.save_feedback())

    results = run_group(ranks, body)
    for total, _ in results[1:]:
        assert total.tobytes() == results[0][0].tobytes()
    exact = sum(data_of(call, ranks).sum(0, dtype=np.float64) for call in range(CALLS))
    owed = sum(np.sum(debts, axis=0, dtype=np.float64) for _, debts in results)
    arrived = results[0][0] * (ranks if op == "avg" else 1)
    np.testing.assert_allclose(arrived + owed, exact, atol=2e-4)
    if ranks > 1:
        assert np.abs(owed).max() > 0.1


def test_a_reduce_scatter_pays_back_too(run_group: Run) -> None:
    ranks, count = 3, 3 * 1001

    def body(group: tersum.Communicator) -> tuple[Data, Data]:
        total = np.zeros(count // ranks)
        for call in range(CALLS):
            mine = data_of(call, ranks, count)[group.rank]
            total += group.reduce_scatter(mine, codec="int2+feedback", plan="two_step", site="x")
        return total, owed_of(group.save_feedback())[0]

    results = run_group(ranks, body)
    exact = sum(data_of(call, ranks, count).sum(0, dtype=np.float64) for call in range(CALLS))
    owed = sum(debts.astype(np.float64) for _, debts in results)
    arrived = np.concatenate([total for total, _ in results])
    np.testing.assert_allclose(arrived + owed, exact, atol=2e-4)


def test_the_mean_of_many_calls_comes_near_the_sum(run_group: Run) -> None:
    """int2 alone is off by as much in every call; with feedback the mean of T calls is by 1/T."""
    calls, data = 50, data_of(0, 4)
    exact = data.sum(0, dtype=np.float64)

    def mean(codec: str) -> Data:
        def body(group: tersum.Communicator) -> Data:
            mine = data[group.rank]
            return sum(group.all_reduce(mine, codec=codec, site="x") for _ in range(calls)) / calls

        return run_group(4, body)[0]

    def error(codec: str) -> float:
        return float(np.linalg.norm(mean(codec) - exact) / np.linalg.norm(exact))

    assert error("int2/32") > 0.5
    assert error("int2/32+feedback") < 0.06


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_list_of_tensors_keeps_what_each_has_lost(run_group: Run, dtype: Any) -> None:
    counts = [3, 70_000, 1, 500, 1_200_000, 129]  # one travels alone

    def tensors(call: int, rank: int) -> list[Data]:
        random = np.random.default_rng([SEED, call, rank])
        return [random.standard_normal(count).astype(dtype) for count in counts]

    def body(group: tersum.Communicator) -> tuple[list[Data], float]:
        totals = [np.zeros(count) for count in counts]
        for call in range(4):
            results = group.all_reduce_coalesced(
                tensors(call, group.rank), codec="int2+feedback", site="list"
            )
            for total, result in zip(totals, results, strict=True):
                total += result
        owed = owed_of(group.save_feedback())
        return totals, sum(float(debts.astype(np.float64).sum()) for debts in owed)

    results = run_group(2, body)
    exact = sum(
        float(x.astype(np.float64).sum())
        for call in range(4)
        for rank in range(2)
        for x in tensors(call, rank)
    )
    arrived = sum(float(total.sum()) for total in results[0][0])
    assert arrived + results[0][1] + results[1][1] == pytest.approx(exact, abs=2)


def test_sites_are_apart_and_a_new_length_begins_anew(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> list[int]:
        mine = data_of(0, 2)[group.rank]
        group.all_reduce(mine, codec="int2+feedback", site="a")
        group.all_reduce(mine[:100], codec="int2+feedback", site="b")
        first = group.all_reduce(mine[:64], codec="int2+feedback", site="a")
        fresh = group.all_reduce(mine[:64], codec="int2")
        assert first.tobytes() == fresh.tobytes()
        # Another type is another site.
        group.all_reduce(mine[:32].astype(np.float16), codec="int2+feedback", site="a")
        return sorted(len(debts) for debts in owed_of(group.save_feedback()))

    assert run_group(2, body) == [[32, 64, 100]] * 2


def test_calls_in_flight_take_turns(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> list[bytes]:
        mine = data_of(0, 3)[group.rank]
        works = [group.all_reduce_async(mine, codec="int3+feedback", site="a") for _ in range(6)]
        together = [work.result().tobytes() for work in works]
        group.reset_feedback()
        apart = [
            group.all_reduce(mine, codec="int3+feedback", site="a").tobytes() for _ in range(6)
        ]
        assert together == apart
        return together

    results = run_group(3, body)
    assert results[0] == results[1] == results[2]


def test_what_is_owed_can_be_kept_and_forgotten(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        mine = data_of(0, 2)[group.rank]

        def call() -> bytes:
            return group.all_reduce(mine, codec="int2+feedback", site="a").tobytes()

        first, saved, second = call(), group.save_feedback(), call()
        assert first != second
        group.load_feedback(saved)
        assert group.save_feedback() == saved
        assert call() == second
        group.reset_feedback()
        assert owed_of(group.save_feedback()) == []
        assert call() == first
        for damaged in (b"", saved[:-1], saved[:20] + b"x" + saved[21:]):
            with pytest.raises(tersum.InvalidArgumentError, match="no saved feedback"):
                group.load_feedback(damaged)
        assert call() == second

    run_group(2, body)


def test_a_failed_call_forgets(run_group: Run) -> None:
    """Its slices may have been coded or not; what was lost before is not given back twice."""

    def body(group: tersum.Communicator) -> None:
        mine = data_of(0, 2)[group.rank]
        codec = "int2+feedback"
        first = group.all_reduce(mine, codec=codec, site="a")
        with pytest.raises(tersum.DisagreementError):
            group.all_reduce(mine, codec=codec, site="a", plan=("ring", "tree")[group.rank])
        assert [len(debts) for debts in owed_of(group.save_feedback())] == [0]
        again = group.all_reduce(mine, codec=codec, site="a")
        assert again.tobytes() == first.tobytes()

    run_group(2, body)


def test_values_that_are_no_numbers_are_not_repeated(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        mine = data_of(0, 2)[group.rank]
        group.all_reduce(mine, codec="int4/32+feedback", site="a")
        mine[40] = np.nan
        lost = group.all_reduce(mine, codec="int4/32+feedback", site="a", plan="two_step")
        assert np.isnan(lost[32:64]).all()
        assert np.isfinite(lost[64:]).all()
        mine[40] = 1
        assert np.isfinite(group.all_reduce(mine, codec="int4/32+feedback", site="a")).all()

    run_group(2, body)


def test_a_sum_without_a_site_is_refused(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = np.ones(64, np.float32)
        for call in (group.all_reduce, group.reduce_scatter):
            with pytest.raises(tersum.InvalidArgumentError, match="pass a site"):
                call(x, codec="int8+feedback")
        with pytest.raises(tersum.InvalidArgumentError, match="pass a site"):
            group.all_reduce_coalesced([x, x], codec="int8+feedback")
        # What is only copied, and what travels exactly, loses nothing that a next call could have.
        group.all_gather(x, codec="int8+feedback")
        group.all_reduce(x.astype(np.int64), codec="int8+feedback")
        bound = group.error_bound("int8+feedback", count=64, absmax=1, sum_absmax=2)
        assert bound == np.inf

    run_group(2, body)
