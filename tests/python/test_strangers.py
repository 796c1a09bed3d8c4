"""Whoever connects to a group's port without its token is dropped, and the group goes on."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import tersum

BYTES = {
    "http": b"GET / HTTP/1.1\r\nHost: tersum\r\n\r\n",
    "nothing": b"",
    "zeros": bytes(4096),
    "long": b"\xff" * 65_536,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_group_in_the_middle_of_its_work_goes_on(ranks: Any) -> None:
    port = free_port()
    ranks.start(
        2,
        f"""
        import socket
        sent = {BYTES!r}
        port = {port}
        with tersum.Communicator(
            rank, size, store, transport="tcp", port=port if rank == 0 else 0
        ) as group:
            x = np.full(100_000, rank + 1.0, np.float32)
            strangers = []
            for text in sent.values():
                if rank == 1:
                    stranger = socket.create_connection(("127.0.0.1", port), timeout=10)
                    stranger.sendall(text)
                    strangers.append(stranger)
                say(group.all_reduce(x, codec="exact").sum())
                say(group.all_reduce(x, codec="int8")[-1])
            for stranger in strangers:
                stranger.close()
            say(group.all_reduce(x, codec="exact").sum())
            group.barrier()
        """,
    )
    lines = []
    for rank in range(2):
        status, out, err = ranks.finish(rank)
        assert status == 0, err
        lines.append(out.splitlines())
    assert lines[0] == lines[1] and len(lines[0]) == 2 * len(BYTES) + 1
    assert set(lines[0][::2]) == {"300000.0"}
    assert [float(line) for line in lines[0][1::2]] == pytest.approx([3.0] * len(BYTES), rel=0.02)


def test_a_stranger_that_talks_nonsense_is_hung_up_on(ranks: Any) -> None:
    port = free_port()
    ranks.start(
        2,
        f"""
        import socket
        with tersum.Communicator(
            rank, size, store, transport="tcp", port={port} if rank == 0 else 0
        ) as group:
            x = np.ones(1000, np.float32)
            group.all_reduce(x)
            if rank == 1:
                stranger = socket.create_connection(("127.0.0.1", {port}), timeout=10)
                stranger.sendall({BYTES["http"]!r})
            group.all_reduce(x)
            if rank == 1:
                work = group.all_reduce_async(x)
                stranger.settimeout(10)
                try:
                    rest = stranger.recv(4096)
                    while rest:
                        rest = stranger.recv(4096)
                    say("closed")
                except ConnectionResetError:
                    say("closed")
                work.wait()
            else:
                group.all_reduce(x)
        """,
    )
    for rank in range(2):
        status, out, err = ranks.finish(rank)
        assert status == 0, err
        assert out.strip() == ("closed" if rank == 1 else "")


@pytest.mark.parametrize("listen", ["nosuch0", "no such name", "192.0.2.1"])
def test_no_such_interface(listen: str) -> None:
    with pytest.raises(tersum.TersumError, match=listen):
        tersum.Communicator(
            0, 2, tersum.MemoryStore(), listen=listen, transport="tcp", timeout_ms=2_000
        )


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = int(taken.getsockname()[1])
        with pytest.raises(tersum.TersumError, match=str(port)):
            tersum.Communicator(
                0,
                2,
                tersum.MemoryStore(),
                listen="127.0.0.1",
                port=port,
                transport="tcp",
                timeout_ms=2_000,
            )
