"""Ranks that share CPUs: with more than two a CPU, open exact sums of small arrays take a tree."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

CPUS = sorted(os.sched_getaffinity(0))
SCRIPT = """
    import json
    cpus = json.loads('CPUS')
    os.sched_setaffinity(0, {cpus[rank]})
    group = tersum.Communicator(rank, size, store, timeout_ms=60_000)
    part = group.split(0, -rank)
    pair = group.split(0 if rank < 2 else 1, rank)
    total = group.all_reduce(np.arange(9000.0, dtype=np.float32), codec="exact")
    assert (total == 3 * np.arange(9000.0)).all()
    def plan(of, count=9000, dtype="float32", codec="exact"):
        return of.choose("all_reduce", count, dtype, codec=codec).plan
    said = {
        "sent": group.stats().wire_bytes_sent,
        "plans": [plan(group), plan(part)],
        "pair": plan(pair) if pair.size == 2 else "one_shot",
        "others": [plan(group, 900_000), plan(group, dtype="bfloat16"), plan(group, codec="int8")],
    }
    group.tune()
    weighed = group.choose("all_reduce", 250, codec="exact").options
    said["weighed"] = [option.plan for option in weighed]
    say(json.dumps(said))
"""


def outcome(ranks: Any, cpus: list[int]) -> list[dict[str, Any]]:
    ranks.start(3, SCRIPT.replace("CPUS", json.dumps(cpus)))
    said = [json.loads(ranks.line(rank)) for rank in range(3)]
    assert [ranks.finish(rank)[0] for rank in range(3)] == [0, 0, 0]
    return said


def test_three_ranks_of_one_cpu_take_a_tree(ranks: Any) -> None:
    said = outcome(ranks, [CPUS[0]] * 3)
    for rank in said:
        assert rank["plans"] == ["tree", "tree"]
        assert rank["pair"] == "one_shot"
        assert rank["others"] == ["two_step", "one_shot", "one_shot"]
        assert "tree" in rank["weighed"]
    # Two leaves send the array once each, the root sends its sum twice; split takes some more.
    sent = sorted(rank["sent"] for rank in said)
    assert sent == pytest.approx([36_000, 36_000, 72_000], rel=0.01)


@pytest.mark.skipif(len(CPUS) < 2, reason="this process may run on one CPU only")
def test_what_counts_are_the_cpus_of_all(ranks: Any) -> None:
    for rank in outcome(ranks, [CPUS[0], CPUS[0], CPUS[1]]):
        assert rank["plans"] == ["one_shot", "one_shot"]
