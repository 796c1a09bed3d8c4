"""TERSUM_TRACE: one file per process that parses, and ``tersum trace merge``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tersum.cli import main

_SCRIPT = """
x = np.arange(200_000, dtype=np.float32)
with tersum.Communicator(rank, size, store, transport="tcp") as group:
    for _ in range(3):
        group.all_reduce(x)
"""


def _load(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())
    return events


def _run(ranks: Any, monkeypatch: pytest.MonkeyPatch, script: str, **environment: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ranks.start(2, script)
    for rank in range(2):
        status, _, words = ranks.finish(rank)
        assert status == 0, words


def test_each_process_writes_its_own_and_they_merge(
    ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(ranks, monkeypatch, _SCRIPT, TERSUM_TRACE=str(tmp_path / "t.json"))
    paths = [tmp_path / "t.r0.json", tmp_path / "t.r1.json"]
    calls = 0
    for rank, path in enumerate(paths):
        events = _load(path)
        assert events[0]["args"]["name"].startswith(f"tersum rank {rank} (")
        calls += sum(e["name"] == "all_reduce" and e["ph"] == "b" for e in events)
    assert calls == 6
    merged = tmp_path / "merged.json"
    assert main(["trace", "merge", str(merged), *map(str, paths)]) == 0
    assert "2 processes on 1 hosts" in capsys.readouterr().out
    events = _load(merged)
    assert len({event["pid"] for event in events}) == 2
    assert min(event["ts"] for event in events if "ts" in event) == 0
    arrived = [event for event in events if event["name"] == "arrived"]
    deliveries = [event for event in events if event.get("cat") == "delivery"]
    assert arrived and len(deliveries) == 2 * len(arrived)
    # On one clock no slice can arrive before it was queued, and both ranks' calls overlap.
    begins = {e["id"]: e["ts"] for e in deliveries if e["ph"] == "b"}
    assert all(begins[e["id"]] <= e["ts"] for e in deliveries if e["ph"] == "e")


_PART = """
x = np.arange(1 << 20, dtype=np.float32)
transport = "tcp" if rank == 2 else "auto"
with tersum.Communicator(rank, size, store, transport=transport) as group:
    part = group.split(rank // 2)
    for communicator in (group, part):
        communicator.all_reduce(x, codec="exact")
"""


def test_a_part_that_shares_memory_is_cut_so_whatever_the_others_insist_on(
    ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERSUM_TRACE", str(tmp_path / "t.json"))
    ranks.start(3, _PART)
    for rank in range(3):
        status, _, words = ranks.finish(rank)
        assert status == 0, words
    slices: dict[str, int] = {}
    for event in _load(tmp_path / "t.r0.json"):
        if event["name"] == "combine":
            group = event["args"]["group"]
            slices[group] = max(slices.get(group, 0), event["args"]["bytes"])
    assert list(slices.values()) == [64_512, 131_072]


def test_a_program_that_never_closes_still_leaves_a_trace(
    ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
    import atexit
    group = tersum.Communicator(rank, size, store, trace_file=sys.argv[0] + ".%r")
    group.barrier()
    from tersum import communicator
    atexit.unregister(communicator._close_all)
    held = [group, group._core]
    import ctypes
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group._core))
    """
    _run(ranks, monkeypatch, script)
    for rank in range(2):
        events = _load(tmp_path / f"rank.py.{rank}")
        assert any(event["name"] == "barrier" for event in events)


def test_a_small_ring_keeps_the_end_and_says_so(
    ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "%r.json")
    _run(ranks, monkeypatch, _SCRIPT, TERSUM_TRACE=path, TERSUM_TRACE_EVENTS="50")
    events = _load(tmp_path / "0.json")
    clock = next(event for event in events if event["name"] == "tersum_clock")
    assert clock["args"]["dropped"] > 0
    assert any(event["name"] == "all_reduce" for event in events)
    assert len([event for event in events if event["ph"] in "Xi"]) <= 50


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TERSUM_TRACE", "/proc/nowhere/t.json", "/proc/nowhere/t.r0.json"),
        ("TERSUM_TRACE_EVENTS", "many", "TERSUM_TRACE_EVENTS is 'many'"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(
    ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv("TERSUM_TRACE", str(tmp_path / "t.json"))
    monkeypatch.setenv(name, value)
    ranks.start(2, _SCRIPT)
    status, _, error = ranks.finish(0)
    assert status != 0 and words in error


def _trace(pid: int, boot: str, monotonic_ns: int, wall_ns: int, ts: float) -> str:
    clock = {"boot": boot, "monotonic_ns": monotonic_ns, "wall_ns": wall_ns, "dropped": 0}
    events = [
        {"name": "tersum_clock", "ph": "M", "pid": pid, "args": clock},
        {"name": "sleep", "ph": "X", "dur": 1.0, "ts": ts, "pid": pid, "tid": 0, "args": {}},
    ]
    return json.dumps(events)


def test_hosts_are_lined_up_by_their_wall_clocks(tmp_path: Path) -> None:
    one, two, out = tmp_path / "1.json", tmp_path / "2.json", tmp_path / "out.json"
    # Both events at wall time 1,000,500 us; the second host was started 400 us later.
    one.write_text(_trace(7, "a", 1_000_000, 1_001_000_000, 500.0))
    two.write_text(_trace(7, "b", 1_000_000, 1_001_400_000, 100.0))
    assert main(["trace", "merge", str(out), str(one), str(two)]) == 0
    events = _load(out)
    assert [event["ts"] for event in events] == [0, 0]
    assert [event["pid"] for event in events] == [7, 8]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[{", "is no trace"),
        ('{"traceEvents": []}', "holds no list of events"),
        ("[]", "was not written by TERSUM_TRACE"),
        ('[{"name": "tersum_clock", "args": {"boot": "a"}}]', "unreadable clock"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.json"
    path.write_text(text)
    assert main(["trace", "merge", str(tmp_path / "out.json"), str(path)]) == 1
    assert words in capsys.readouterr().err
    assert not os.path.exists(tmp_path / "out.json")
    assert main(["trace", "merge", str(tmp_path / "out.json"), str(tmp_path / "none.json")]) == 1
    assert "cannot read" in capsys.readouterr().err
