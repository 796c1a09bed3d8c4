"""Shaped links: the rate is what was asked for, and nothing is left behind in any way of ending."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import tersum
from tersum.cli import shaped_link
from tersum.cli.network_namespaces import NamespaceError, packet_bytes_max
from tersum.cli.shaped_link import ShapedLink, parse_rate, wire_seconds

REASON = shaped_link.unavailable_reason()
needs_links = pytest.mark.skipif(REASON is not None, reason=f"no shaped links: {REASON}")

SERVER = """
import socket, sys, time
with socket.create_server((sys.argv[1], 9000)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    count = 0
    while data := connection.recv(1 << 20):
        count += len(data)
        if count == len(data):
            began = time.perf_counter()
            first = count
    print((count - first) / (time.perf_counter() - began), flush=True)
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 9000)) as connection:
    for _ in range(int(sys.argv[2])):
        connection.sendall(bytes(1 << 16))
"""


def namespaces() -> list[str]:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in done.stdout.splitlines() if line.startswith("tersum-")]


def own_namespaces(pid: int) -> list[str]:
    return [name for name in namespaces() if name.startswith(f"tersum-{pid}-")]


def throughput(link: ShapedLink, sender: int, receiver: int, packets: int) -> float:
    """Bytes per second of one TCP stream."""
    address = link.addresses[receiver]
    kwargs: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
    with link.popen(receiver, [sys.executable, "-c", SERVER, address], **kwargs) as server:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        argv = [sys.executable, "-c", CLIENT, address, str(packets)]
        with link.popen(sender, argv) as client:
            assert client.wait(30) == 0
        return float(server.stdout.readline())


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1gbit", 10**9), ("0.5gbit", 5 * 10**8), ("500mbit", 5 * 10**8), ("64kbit", 64_000)],
)
def test_rates(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "1", "gbit", "1gb", "-1gbit", "1gbit/s", "1e9bit", "1bit"])
def test_bad_rates_say_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="bad link rate"):
        parse_rate(text)


def test_wire_seconds() -> None:
    # 1 MiB at 1 Gbit/s: 1448 of each 1514 bytes are payload.
    assert wire_seconds(1 << 20, 1e9) == pytest.approx(8.771e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("rate", "burst", "packet_bytes"),
    [
        (10**8, 73_728, 65_536),  # the kernel's limit: a late timer costs such a link nothing
        (10**9, 73_728, 73_728 - 12_500),
        (5 * 10**9, 73_728, 73_728 // 6),
        (10**10, 73_728, 73_728 // 6),
        (10**9, 1_024, 4_096),
    ],
)
def test_packets_leave_a_bucket_room_for_late_timers(
    rate: int, burst: int, packet_bytes: int
) -> None:
    assert packet_bytes_max(rate, burst) == packet_bytes


@needs_links
def test_every_port_takes_packets_for_its_rate() -> None:
    with ShapedLink(ranks=2, rate="5gbit") as link:
        for rate, packet_bytes in (("5gbit", 12_288), ("200mbit", 65_536), ("1gbit", 61_228)):
            link.set_rate(rate)
            for name in link.namespaces:
                argv = ["ip", "-n", name, "-details", "link", "show", link.interface]
                shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
                assert f"gso_max_size {packet_bytes} " in shown


@needs_links
def test_queues_above_a_wire_are_small() -> None:
    with ShapedLink(ranks=2, rate="1gbit") as link:
        limit = "/proc/sys/net/ipv4/tcp_limit_output_bytes"
        for rank in range(2):
            with link.popen(rank, ["cat", limit], stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None and child.stdout.read() == "262144\n"
        argv = [sys.executable, "-c", CLIENT, link.addresses[1], "1600"]
        server = [sys.executable, "-c", SERVER, link.addresses[1]]
        with link.popen(1, server, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
            tc = ["tc", "-n", link.namespaces[0], "-s", "qdisc", "show", "dev", link.interface]
            backlogs = []
            with link.popen(0, argv) as sender:
                while sender.poll() is None:
                    shown = subprocess.run(tc, capture_output=True, text=True, check=True).stdout
                    found = re.search(r"backlog (\d+)(K?)b", shown)
                    assert found is not None
                    backlogs.append(int(found[1]) * (1024 if found[2] else 1))
        # The limit, a packet beyond it, and what packets weigh above their bytes.
        assert 0 < max(backlogs) < 2 * 262_144


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="2 to 200 ranks, got 1"):
        ShapedLink(ranks=1)
    with pytest.raises(ValueError, match="bad burst"):
        ShapedLink(burst="lots")


def test_without_root_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "run as root (sudo)" in (shaped_link.unavailable_reason() or "")
    with pytest.raises(NamespaceError, match="run as root"), ShapedLink():
        pass


@needs_links
@pytest.mark.parametrize("ranks", [2, 3])
def test_both_directions_run_at_the_rate(ranks: int) -> None:
    with ShapedLink(ranks, "200mbit") as link:
        for sender, receiver in ((0, ranks - 1), (ranks - 1, 0)):
            rate = throughput(link, sender, receiver, 160) * 8 * shaped_link.FRAME_OVERHEAD
            # The bucket, and what the socket buffers hide at the start, may add a little.
            assert 0.85 * 200e6 < rate < 1.1 * 200e6
        link.set_rate("400mbit")
        rate = throughput(link, 0, 1, 320) * 8 * shaped_link.FRAME_OVERHEAD
        assert 0.85 * 400e6 < rate < 1.1 * 400e6
    assert own_namespaces(os.getpid()) == []


@needs_links
def test_namespaces_are_apart() -> None:
    with ShapedLink() as link:
        seen = set()
        for rank in range(2):
            argv = ["readlink", "/proc/self/ns/net"]
            with link.popen(rank, argv, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                seen.add(child.stdout.read())
        assert len(seen | {os.readlink("/proc/self/ns/net") + "\n"}) == 3
        assert link.environment(1) == {"GLOO_SOCKET_IFNAME": "tersum0", "MASTER_ADDR": "10.77.0.1"}


@needs_links
def test_an_exception_cleans_up() -> None:
    with pytest.raises(RuntimeError, match="the test's"), ShapedLink():
        raise RuntimeError("the test's")
    assert own_namespaces(os.getpid()) == []


@needs_links
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_dead_process_leaves_nothing_behind(ending: signal.Signals) -> None:
    script = """
        import sys, time
        from tersum.cli.shaped_link import ShapedLink
        with ShapedLink() as link:
            inside = link.popen(1, ["sleep", "600"])
            print(inside.pid, flush=True)
            time.sleep(600)
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(tersum.__file__).parent.parent)}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert child.stdout is not None
    inside = int(child.stdout.readline())
    assert len(own_namespaces(child.pid)) == 2
    child.send_signal(ending)
    child.wait(20)
    child.stdout.close()
    deadline = time.monotonic() + 20
    while (own_namespaces(child.pid) or _alive(inside)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert own_namespaces(child.pid) == []
    assert not _alive(inside)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
