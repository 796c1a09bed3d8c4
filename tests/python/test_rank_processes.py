"""Ranks in processes: Ctrl-C, killed peers, mixtures of threads and processes, clean exits."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

import tersum

ARRAYS = "x = np.full(100_000, rank + 1.0, np.float32)\n"


@pytest.mark.parametrize("transport", ["auto", "tcp", "shm"])
def test_two_processes(ranks: Any, transport: str) -> None:
    ranks.start(
        2,
        f"""
        with tersum.Communicator(rank, size, store, transport="{transport}") as group:
            x = np.full(100_000, rank + 1.0, np.float32)
            say(group.all_reduce(x, codec="exact").sum())
            say(group.all_reduce(x, codec="int8/128")[0])
        """,
    )
    lines = []
    for rank in range(2):
        status, out, err = ranks.finish(rank)
        assert status == 0, err
        assert "leak" not in err
        lines.append(out.split())
    assert lines[0] == lines[1] and float(lines[0][0]) == 300_000.0
    assert float(lines[0][1]) == pytest.approx(3.0, rel=0.02)


def test_payload_stores_are_the_environments_and_change_no_bits(ranks: Any) -> None:
    ranks.start(
        2,
        """
        import hashlib
        os.environ["TERSUM_SHM_STORES"] = "streamed" if rank == 0 else "cached"
        with tersum.Communicator(rank, size, store, transport="shm") as group:
            x = np.random.default_rng(rank).standard_normal(100_003).astype(np.float32)
            y = group.all_reduce(x, codec="int8/128")
            say(hashlib.sha256(y.tobytes()).hexdigest())
        say(tersum.stats()["calls"][0]["wire_bytes_streamed"])
        """,
    )
    lines = []
    for rank in range(2):
        status, out, err = ranks.finish(rank)
        assert status == 0, err
        lines.append(out.splitlines())
    assert lines[0][0] == lines[1][0]
    # A half as contribution, a half as result, for the other rank.
    assert int(lines[0][1]) == tersum.codec_wire_bytes("int8/128", 100_003)
    assert int(lines[1][1]) == 0


def test_unknown_payload_stores_are_refused(ranks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process reads them with its first communicator, so that it has to be a new one.
    monkeypatch.setenv("TERSUM_SHM_STORES", "warm")
    ranks.start(1, "tersum.Communicator(rank, size, store)\n")
    status, _, error = ranks.finish(0)
    assert status != 0 and "InvalidArgumentError" in error
    assert "'warm'; set it to auto, cached or" in error


def test_ctrl_c_ends_a_blocking_call_and_the_other_rank_hears_of_it(ranks: Any) -> None:
    ranks.start(
        2,
        """
        with tersum.Communicator(rank, size, store) as group:
            group.barrier()
            if rank == 1:
                say("ready")
                sys.stdin.readline()
            try:
                if rank == 0:
                    say("ready")
                group.all_reduce(np.ones(1000, np.float32))
                say("no error")
            except KeyboardInterrupt:
                say("KeyboardInterrupt")
                try:
                    group.barrier()
                except tersum.AbortedError as error:
                    say(f"then {error}")
            except tersum.AbortedError as error:
                say(f"aborted {error}")
        """,
    )
    assert ranks.line(0) == "ready" and ranks.line(1) == "ready"
    time.sleep(0.2)
    began = time.monotonic()
    ranks.children[0].send_signal(signal.SIGINT)
    assert ranks.line(0) == "KeyboardInterrupt"
    assert time.monotonic() - began < 5  # far below the deadline of 30 s
    assert "Ctrl-C" in ranks.line(0)
    ranks.children[1].stdin.write("\n")
    ranks.children[1].stdin.flush()
    assert "Ctrl-C" in ranks.line(1)
    assert ranks.finish(0)[0] == 0 and ranks.finish(1)[0] == 0


@pytest.mark.parametrize("store", ["store", "'tcp://127.0.0.1:1'", "tersum.MemoryStore()"])
def test_ctrl_c_ends_the_wait_for_other_ranks(ranks: Any, store: str) -> None:
    ranks.start(
        1,
        f"""
        say("ready")
        try:
            tersum.Communicator(1, 2, {store})
        except KeyboardInterrupt:
            say("KeyboardInterrupt")
        """,
    )
    assert ranks.line(0) == "ready"
    time.sleep(0.5)
    began = time.monotonic()
    ranks.children[0].send_signal(signal.SIGINT)
    assert ranks.line(0) == "KeyboardInterrupt"
    assert time.monotonic() - began < 5
    assert ranks.finish(0)[0] == 0


def test_ctrl_c_during_work_wait(ranks: Any) -> None:
    ranks.start(
        2,
        """
        with tersum.Communicator(rank, size, store) as group:
            group.barrier()
            say("ready")
            if rank == 1:
                sys.stdin.readline()
                sys.exit()
            work = group.all_reduce_async(np.ones(1000, np.float32))
            try:
                work.wait()
            except KeyboardInterrupt:
                say(f"KeyboardInterrupt {work.done()}")
        """,
    )
    assert ranks.line(0) == "ready" and ranks.line(1) == "ready"
    time.sleep(0.2)
    ranks.children[0].send_signal(signal.SIGINT)
    assert ranks.line(0) == "KeyboardInterrupt True"


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_killed_peer_is_named_by_the_deadline(ranks: Any, transport: str) -> None:
    ranks.start(
        3,
        f"""
        with tersum.Communicator(rank, size, store, transport="{transport}") as group:
            group.barrier()
            say("ready")
            if rank == 2:
                sys.stdin.readline()
            try:
                for _ in range(100_000):
                    group.all_reduce(np.ones(1000, np.float32), timeout_ms=10_000)
            except tersum.PeerLostError as error:
                assert isinstance(error, ConnectionError)
                say(f"lost: {{error}}")
        """,
    )
    for rank in range(3):
        assert ranks.line(rank) == "ready"
    began = time.monotonic()
    ranks.children[2].kill()
    for rank in range(2):
        assert "rank 2" in ranks.line(rank)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("in_the_middle", [False, True], ids=["not-entered", "in-the-middle"])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_stopped_peer_is_named_at_the_deadline(
    ranks: Any, transport: str, in_the_middle: bool
) -> None:
    """Its connections stay open, so that nothing but the deadline tells."""
    timeout_s = 2.0
    ranks.start(
        3,
        f"""
        x = np.ones(1_000_000, np.float32)
        with tersum.Communicator(rank, size, store, transport="{transport}") as group:
            group.all_reduce(x)
            say("ready")
            if rank == 2 and not {in_the_middle}:
                sys.stdin.readline()
            try:
                for _ in range(100_000):
                    began = time.monotonic()
                    group.all_reduce(x, timeout_ms={int(timeout_s * 1000)})
            except (tersum.TimeoutError, tersum.PeerLostError) as error:
                say(f"{{time.monotonic() - began}} {{error}}")
        """,
    )
    for rank in range(3):
        assert ranks.line(rank) == "ready"
    time.sleep(0.2)
    ranks.children[2].send_signal(signal.SIGSTOP)
    try:
        for rank in range(2):
            seconds, message = ranks.line(rank).split(" ", 1)
            # Between the deadline and the word of it lies no more than a busy machine's delay.
            assert float(seconds) < timeout_s + 2, message
            assert "rank 2" in message and f"rank {1 - rank}" not in message, message
            assert f"rank {rank} " not in message, message
    finally:
        ranks.children[2].kill()


def test_exit_with_a_call_in_flight_is_clean(ranks: Any) -> None:
    ranks.start(
        2,
        """
        group = tersum.Communicator(rank, size, store)
        group.barrier()
        say("ready")
        if rank == 1:
            sys.stdin.readline()
            sys.exit()
        work = group.all_reduce_async(np.ones(1_000_000, np.float32))
        # Neither waited for nor closed: the interpreter's exit must end it.
        """,
    )
    assert ranks.line(0) == "ready" and ranks.line(1) == "ready"
    status, _, err = ranks.finish(0, timeout=20)
    assert (status, err) == (0, "")


def test_threads_and_processes_mix(ranks: Any) -> None:
    ranks.start(
        2,
        """
        import threading
        def one(index):
            with tersum.Communicator(2 * rank + index, 2 * size, store) as group:
                x = np.full(10_000, 1.0 + group.rank, np.float32)
                results[index] = group.all_reduce(x, codec="int8/64").tobytes()
        results = {}
        threads = [threading.Thread(target=one, args=(index,)) for index in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        import zlib
        assert results[0] == results[1]
        say(zlib.crc32(results[0]))
        """,
    )
    outputs = {ranks.finish(rank)[1].strip() for rank in range(2)}
    assert len(outputs) == 1 and outputs != {""}


def test_a_tcp_store_serves_several_groups(ranks: Any) -> None:
    ranks.start(
        2,
        """
        import socket
        if rank == 0:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            with open(store[7:] + ".port.new", "w") as file:
                file.write(str(port))
            os.rename(store[7:] + ".port.new", store[7:] + ".port")
        while not os.path.exists(store[7:] + ".port"):
            time.sleep(0.01)
        url = "tcp://127.0.0.1:" + open(store[7:] + ".port").read()
        with tersum.Communicator(rank, size, url, name="a") as a:
            with tersum.Communicator(rank, size, url, name="b") as b:
                x = np.ones(3)
                say(a.all_reduce(x, codec="exact")[0] + b.all_reduce(x, codec="exact")[0])
        """,
    )
    for rank in range(2):
        status, out, err = ranks.finish(rank)
        assert (status, out.strip()) == (0, "4.0"), err
