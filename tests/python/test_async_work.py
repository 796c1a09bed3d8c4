"""Works in flight: several at once, dropped handles, deadlines, arrays kept alive."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import tersum


def test_results_of_several_calls_in_flight(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> list[Any]:
        works = [
            group.all_reduce_async(np.full(50_000, k + group.rank, np.float32), codec="exact")
            for k in range(16)
        ]
        return [work.result() for work in reversed(works)][::-1]

    for results in run_group(3, body):
        for k, result in enumerate(results):
            np.testing.assert_array_equal(result, 3 * k + 3)


def test_every_collective_has_an_async_form(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> tuple[Any, ...]:
        x = np.arange(4, dtype=np.float32) + group.rank
        works = (
            group.all_reduce_async(x, codec="exact"),
            group.reduce_scatter_async(x, codec="exact"),
            group.all_gather_async(x),
            group.broadcast_async(x, 1),
            group.barrier_async(),
        )
        return tuple(work.result() for work in works)

    for rank, (reduced, part, gathered, sent, nothing) in enumerate(run_group(2, body)):
        np.testing.assert_array_equal(reduced, [1, 3, 5, 7])
        np.testing.assert_array_equal(part, [[1, 3], [5, 7]][rank])
        np.testing.assert_array_equal(gathered, [0, 1, 2, 3, 1, 2, 3, 4])
        np.testing.assert_array_equal(sent, [1, 2, 3, 4])
        assert nothing is None


def test_done_never_blocks_and_wait_may_be_repeated(run_group: Any) -> None:
    gate = threading.Event()

    def body(group: tersum.Communicator) -> None:
        if group.rank == 1:
            gate.wait(20)
        work = group.all_reduce_async(np.ones(10, np.float32), codec="exact")
        if group.rank == 0:
            assert not work.done()
            with pytest.raises(tersum.TimeoutError, match="it goes on"):
                work.wait(timeout_ms=20)
            gate.set()
        work.wait()
        work.wait(timeout_ms=0)
        assert work.done()
        np.testing.assert_array_equal(work.result(), 2.0)

    run_group(2, body)


def test_a_failed_work_raises_at_every_wait(run_group: Any) -> None:
    gate = threading.Event()

    def body(group: tersum.Communicator) -> None:
        if group.rank == 1:
            gate.wait(20)
            return
        work = group.all_reduce_async(np.ones(10, np.float32), timeout_ms=200)
        for _ in range(2):
            with pytest.raises(tersum.TimeoutError, match="rank 1"):
                work.wait()
        gate.set()

    run_group(2, body)


def test_arrays_of_a_dropped_work_live_until_it_has_ended(run_group: Any) -> None:
    gate = threading.Event()

    def body(group: tersum.Communicator) -> Any:
        if group.rank == 1:
            gate.wait(20)
            return group.all_reduce(np.ones(100_000, np.float32), codec="exact")
        x, out = np.ones(100_000, np.float32), np.zeros(100_000, np.float32)
        alive, watched = weakref.ref(x), out.view()
        group.all_reduce_async(x, codec="exact", out=out)  # the Work is dropped at once
        del x, out
        gc.collect()
        assert alive() is not None  # in flight: rank 1 has not entered
        gate.set()
        barriers(group)
        assert alive() is None  # a later call has let go of what ended
        return watched

    # The first barrier may end on a rank before its all_reduce does; the second cannot.
    def barriers(group: tersum.Communicator) -> None:
        group.barrier()
        group.barrier()

    def with_barriers(group: tersum.Communicator) -> Any:
        result = body(group)
        if group.rank == 1:
            barriers(group)
        return result

    for result in run_group(2, with_barriers):
        np.testing.assert_array_equal(result, 2.0)


def test_closing_ends_works_and_frees_their_arrays(run_group: Any) -> None:
    gate = threading.Event()

    def body(group: tersum.Communicator) -> None:
        if group.rank == 1:
            gate.wait(20)
            return
        x = np.ones(1000, np.float32)
        references = sys.getrefcount(x)
        work = group.all_reduce_async(x)
        group.close()
        assert work.done()
        with pytest.raises((tersum.ClosedError, tersum.AbortedError)):
            work.wait()
        del work
        assert sys.getrefcount(x) == references
        gate.set()

    run_group(2, body)


def test_a_work_keeps_its_communicator(run_group: Any) -> None:
    store = tersum.MemoryStore()
    results: list[Any] = []

    def rank_main(rank: int) -> None:
        def start() -> tersum.Work[Any]:
            group = tersum.Communicator(rank, 2, store)
            return group.all_reduce_async(np.ones(1000, np.float32), codec="exact")

        work = start()
        gc.collect()
        results.append(work.result())
        # Leave together: dropping the last handle closes the group for the other rank.
        meeting.wait(20)

    meeting = threading.Barrier(2)
    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 2
    for result in results:
        np.testing.assert_array_equal(result, 2.0)


def test_threads_that_share_a_communicator_in_an_agreed_order(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> list[float]:
        order = threading.Semaphore(1)
        results: dict[int, float] = {}

        def one(k: int, work: tersum.Work[Any]) -> None:
            results[k] = float(work.result()[0])

        threads = []
        for k in range(8):
            with order:
                work = group.all_reduce_async(np.full(1000, float(k), np.float32), codec="exact")
            threads.append(threading.Thread(target=one, args=(k, work)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return [results[k] for k in range(8)]

    assert run_group(2, body) == [[2.0 * k for k in range(8)]] * 2


def test_the_gil_is_released_while_waiting(run_group: Any) -> None:
    ticks = 0

    def body(group: tersum.Communicator) -> int:
        nonlocal ticks
        if group.rank == 1:
            # Rank 0 waits inside the core; only a released GIL lets this thread count.
            for _ in range(200_000):
                ticks += 1
        group.barrier()
        return ticks

    assert run_group(2, body) == [200_000, 200_000]
