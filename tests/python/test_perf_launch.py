"""The ranks of ``tersum perf``: its own, interrupted or failing, and those of a launcher."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tersum.cli import main

sys.path.insert(0, str(Path(__file__).resolve().parent))

from perf_runs import ENVIRONMENT, SMALL, perf, rows_of


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    arguments = ["--iters", "100000", "--max-bytes", "64K", "--ranks", "3"]
    child = subprocess.Popen(
        [sys.executable, "-m", "tersum", "perf", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert child.stdout is not None
    child.stdout.readline()  # the heading: the ranks are being started
    deadline = time.monotonic() + 20
    while len(_workers(child.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = _workers(child.pid)
    assert len(workers) == 3
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130 and "interrupted" in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_ctrl_c_while_a_rank_is_started_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)  # the process is there, and nobody knows of it yet

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert main(["perf", "--iters", "100000", "--max-bytes", "64K", "--ranks", "3"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert [child.returncode for child in started] == [-signal.SIGKILL]
    assert signal.getsignal(signal.SIGINT) is before


def _workers(parent: int) -> list[int]:
    path = Path(f"/proc/{parent}/task/{parent}/children")
    try:
        return [int(pid) for pid in path.read_text().split()]
    except OSError:
        return []


def test_a_failing_rank_is_reported() -> None:
    done = perf("--timeout-ms", "1", "--max-bytes", "64M", *SMALL[4:], "--min-bytes", "64M")
    assert done.returncode == 1
    assert "rank" in done.stderr and "Traceback" not in done.stderr


def test_more_than_there_is_memory_for() -> None:
    done = perf("--min-bytes", "4194304G", "--max-bytes", "4194304G", "--codec", "exact")
    assert done.returncode == 1
    assert "pass a smaller --max-bytes" in done.stderr
    assert "Traceback" not in done.stderr


def joined(*arguments: str) -> list[subprocess.CompletedProcess[str]]:
    """Two ranks of a launcher that tells them their places as Open MPI's does."""
    ranks = []
    for rank in range(2):
        place = {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "PMIX_NAMESPACE": f"test-{os.getpid()}",
        }
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-m", "tersum", "perf", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**ENVIRONMENT, **place},
            )
        )
    done = []
    for child in ranks:
        out, err = child.communicate(timeout=60)
        done.append(subprocess.CompletedProcess(child.args, child.returncode, out, err))
    return done


def test_joins_a_launcher(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    ranks = joined("--json", str(path), *SMALL)
    assert [rank.returncode for rank in ranks] == [0, 0], ranks
    assert ranks[0].stdout and not ranks[1].stdout  # rank 0 speaks for all
    assert len(rows_of(path)) == 2


def test_more_than_a_launchers_ranks_have_memory_for() -> None:
    for rank in joined("--min-bytes", "4194304G", "--max-bytes", "4194304G", "--codec", "exact"):
        assert rank.returncode == 1
        assert "pass a smaller --max-bytes" in rank.stderr
        assert "Traceback" not in rank.stderr


def test_joins_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    path = tmp_path / "rows.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"),
            *("-m", "tersum", "perf", "--json", str(path), "--compare", "gloo", *SMALL),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    assert [row["library"] for row in rows_of(path)] == ["tersum", "gloo"] * 2


def test_joins_mpirun(tmp_path: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed (Debian: openmpi-bin)")
    path = tmp_path / "rows.json"
    done = subprocess.run(
        [
            *("mpirun", "--oversubscribe", "-np", "2"),
            *(sys.executable, "-m", "tersum", "perf", "--json", str(path), *SMALL),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        # As a user of MPI may be root in a container; Open MPI asks twice.
        env={
            **ENVIRONMENT,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    rows = rows_of(path)
    # One group of two: two groups of one would each have written rows, with no wire between ranks.
    assert [row["ranks"] for row in rows] == [2, 2]
    assert all(row["wire_bytes"] > 0 for row in rows)
