"""Arrays that ranks of one host read and write where they are: what a rank that is stopped or
killed in the middle leaves behind, and what the environment says of it."""

from __future__ import annotations

import json
import signal
import textwrap
import time
from typing import Any

import pytest

NOT_REACHED = "this system lets no process reach another's memory, or has too little cache or CPUs"

#: Calls over arrays that are reached, until one fails; `array` is the last one's.
CALLS = """
import hashlib, json

def placed():
    return sum(call["wire_bytes_placed"] for call in tersum.stats()["calls"])

def call_on(group, array, **options):
    while True:
        array[:] = group.rank + 1.0
        group.all_reduce(array, out=array, codec="exact", **options)
        assert (array == group.size * (group.size + 1) / 2).all(), "wrong sums"
"""


def script_of(body: str) -> str:
    return textwrap.dedent(CALLS) + textwrap.dedent(body)


def test_none_are_reached_where_the_environment_forbids_it(ranks: Any) -> None:
    ranks.start(
        2,
        script_of("""
        os.environ["TERSUM_SHM_REACH"] = "off"
        with tersum.Communicator(rank, size, store, transport="shm") as group:
            array = np.full(200_000, rank + 1.0, np.float32)
            group.all_reduce(array, out=array, codec="exact")
            assert (array == 3).all()
        say(placed())
        """),
    )
    for rank in range(2):
        status, out, err = ranks.finish(rank)
        assert status == 0, err
        assert int(out) == 0


def test_unknown_policies_are_refused(ranks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERSUM_SHM_REACH", "far")
    ranks.start(1, "tersum.Communicator(rank, size, store)\n")
    status, _, error = ranks.finish(0)
    assert status != 0 and "InvalidArgumentError" in error
    assert "'far'; set it to auto, off or allow" in error


SUMS = """
name = os.environ["TERSUM_SHM_REACH"]
with tersum.Communicator(rank, size, store, name=name, transport="shm") as group:
    x = np.random.default_rng(rank).standard_normal(300_001).astype(np.float32)
    group.all_reduce(x, codec="exact", plan="two_step")  # with which doors open
    for op in ("sum", "avg", "max"):
        y = group.all_reduce(x, op, codec="exact", plan="two_step")
        say(hashlib.sha256(y.tobytes()).hexdigest())
        z = x.copy()
        group.all_reduce(z, op, out=z, codec="exact", plan="two_step")
        assert (y == z).all()
say(placed())
"""


def test_bits_are_those_of_messages(ranks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERSUM_SHM_STORES", "cached")
    hashes = set()
    reached = {}
    for policy in ("auto", "allow", "off"):
        monkeypatch.setenv("TERSUM_SHM_REACH", policy)
        first = len(ranks.children)
        ranks.start(3, script_of(SUMS))
        for rank in range(first, first + 3):
            status, out, err = ranks.finish(rank)
            assert status == 0, err
            *printed, placed = out.split()
            hashes.add(tuple(printed))
            reached[policy] = int(placed)
    assert len(hashes) == 1
    assert reached["off"] == 0
    if reached["auto"] == 0 == reached["allow"]:
        pytest.skip(NOT_REACHED)


def begin_calls(ranks: Any, body: str) -> None:
    """Starts three ranks with ``group`` and ``array``, and waits until they run ``body``."""
    ready = """
    group = tersum.Communicator(rank, size, store, transport="shm")
    array = np.empty(600_000, np.float32)
    group.barrier()
    say("begins")
    """
    ranks.start(3, script_of(ready) + textwrap.dedent(body))
    for rank in range(3):
        assert ranks.line(rank) == "begins"


# Stopped at any moment, often enough in the middle of a copy: the others' deadlines hold, and when
# it goes on it finds their arrays closed.
@pytest.mark.parametrize("stop_after_s", [0.0101, 0.0213, 0.0307, 0.0419, 0.0523, 0.0631])
def test_a_rank_that_is_stopped_writes_nothing_when_it_goes_on(
    ranks: Any, monkeypatch: pytest.MonkeyPatch, stop_after_s: float
) -> None:
    monkeypatch.setenv("TERSUM_SHM_STORES", "cached")
    begin_calls(
        ranks,
        """
        try:
            call_on(group, array, plan="two_step", timeout_ms=400)
        except tersum.TersumError as error:
            array[:] = 7
            say(json.dumps([type(error).__name__, str(error), placed()]))
        sys.stdin.readline()
        assert (array == 7).all(), "written to after the call had ended"
        """,
    )
    time.sleep(stop_after_s)
    ranks.children[1].send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    heard = [ranks.line(rank) for rank in (0, 2)]
    assert time.monotonic() - stopped < 5  # the deadline is 0.4 s
    ranks.children[1].send_signal(signal.SIGCONT)
    heard.append(ranks.line(1))
    time.sleep(0.05)
    for rank in range(3):
        ranks.children[rank].stdin.write("\n")
        ranks.children[rank].stdin.flush()
    for rank in range(3):
        status, _, err = ranks.finish(rank)
        assert status == 0, err
    assert any("rank 1" in line for line in heard[:2]), heard
    assert all("Timeout" in line for line in heard[:2]), heard
    if json.loads(heard[0])[2] == 0:
        pytest.skip(NOT_REACHED)


@pytest.mark.parametrize("kill_after_s", [0.0107, 0.0229, 0.0311, 0.0437])
def test_a_rank_that_is_killed_is_named_at_once(
    ranks: Any, monkeypatch: pytest.MonkeyPatch, kill_after_s: float
) -> None:
    monkeypatch.setenv("TERSUM_SHM_STORES", "cached")
    begin_calls(
        ranks,
        """
        try:
            call_on(group, array, plan="two_step")
        except tersum.PeerLostError as error:
            say(json.dumps([str(error), placed()]))
        """,
    )
    time.sleep(kill_after_s)
    ranks.children[1].kill()
    killed = time.monotonic()
    heard = [json.loads(ranks.line(rank)) for rank in (0, 2)]
    assert all("rank 1" in error for error, _ in heard)
    assert time.monotonic() - killed < 5  # far below the deadline of 30 s
    for rank in (0, 2):
        status, _, err = ranks.finish(rank)
        assert status == 0, err
    if heard[0][1] == 0:
        pytest.skip(NOT_REACHED)
