"""Threads and descriptors of this process after groups have come and gone, also in error."""

from __future__ import annotations

from typing import Any

import pytest

COUNTING = """
        def counted():
            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        def settled(wanted):
            # A connection that the peer closes last is gone a moment later.
            until = time.monotonic() + 10
            while counted() != wanted and time.monotonic() < until:
                time.sleep(0.02)
            return counted()
        def expect(error, call):
            try:
                call()
            except error:
                return
            sys.exit(f"no {error.__name__}")
"""
ROUNDS = 20


def counts(ranks: Any, rank: int) -> list[str]:
    status, out, err = ranks.finish(rank, timeout=120)
    assert status == 0, err
    lines = [str(line) for line in out.splitlines()]
    assert len(lines) == 2, out
    return lines


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_groups_whose_calls_time_out_leave_no_thread_and_no_descriptor(
    ranks: Any, transport: str
) -> None:
    ranks.start(
        2,
        COUNTING
        + f"""
        def round(number):
            x = np.ones(100_000, np.float32)
            group = tersum.Communicator(
                rank, size, store, name=f"group {{number}}", transport="{transport}"
            )
            group.all_reduce(x)
            group.all_reduce_async(x).wait()
            if rank == 1:
                time.sleep(0.15)
            expect(tersum.TimeoutError, lambda: group.all_reduce(x, timeout_ms=100))
            expect(tersum.TimeoutError, lambda: group.all_reduce_async(x).wait())
            group.close()
        # What lives as long as the process (the poller, the progress thread) is there after two.
        for number in range(2):
            round(number)
        time.sleep(1)
        before = counted()
        for number in range(2, 2 + {ROUNDS}):
            round(number)
        say(before)
        say(settled(before))
        """,
    )
    for rank in range(2):
        before, after = counts(ranks, rank)
        assert before == after


def test_groups_that_never_meet_leave_no_thread_and_no_descriptor(ranks: Any) -> None:
    ranks.start(
        1,
        COUNTING
        + f"""
        import socket
        with socket.create_server(("127.0.0.1", 0)) as free:
            url = f"tcp://127.0.0.1:{{free.getsockname()[1]}}"
        def round(number):
            expect(tersum.TimeoutError, lambda: tersum.Communicator(
                0, 2, store, name=f"group {{number}}", timeout_ms=50))
            expect(tersum.TimeoutError, lambda: tersum.Communicator(
                0, 2, url, timeout_ms=50))
        for number in range(2):
            round(number)
        before = counted()
        for number in range(2, 2 + {ROUNDS}):
            round(number)
        say(before)
        say(settled(before))
        """,
    )
    before, after = counts(ranks, 0)
    assert before == after
