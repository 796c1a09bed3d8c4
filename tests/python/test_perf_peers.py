"""``tersum perf --compare`` with other libraries' programs: what is skipped and why, what a program
that fails or lies does to the table, and a short real run of each one that is built here."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tersum
from tersum import _core
from tersum.cli import perf_rank
from tersum.cli.command_error import CommandError
from tersum.cli.perf_binding import cpus_by_rank
from tersum.cli.perf_options import LIBRARIES
from tersum.cli.perf_peers import DEFAULT_FOLDER, PEERS, Job, PeerJob, Turns, why_not
from tersum.cli.perf_placement import Placement, farthest_ns, measure_placement, placement_line
from tersum.cli.perf_rank import _turns

sys.path.insert(0, str(Path(__file__).resolve().parent))

from perf_samples import sample_options

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / DEFAULT_FOLDER
SMALL = ["--min-bytes", "4K", "--max-bytes", "16K", "--iters", "3", "--warmup", "1"]

# Speaks the harness's protocol; what it answers is the test's choice.
FAKE = """#!{python}
import sys, time
folder, rank = sys.argv[1], int(sys.argv[2])
orders = open(f"{{folder}}/in.{{rank}}")
answers = open(f"{{folder}}/out" if rank == 0 else f"{{folder}}/done", "w")
def answer(text):
    print(text if rank == 0 else ".", end="\\n" if rank == 0 else "", file=answers, flush=True)
cpus = open(f"{{folder}}/cpus").read()
open(sys.argv[0] + ".cpus", "w").write(cpus)
if rank == 0:
    answer("ready bound 3" if cpus and {binds} else "ready free 3")
for line in orders:
    words = line.split()
    if words[0] == "quit":
        break
    if rank > 0:
        time.sleep({leaving_s})
    if words[0] == "check":
        answer("{check}")
    else:
        answer(" ".join(["ok"] + ["{seconds}"] * int(words[2])))
"""


def fake(check: str = "ok 0", seconds: str = "1", binds: bool = True, leaving_s: float = 0) -> str:
    return FAKE.format(
        python=sys.executable, check=check, seconds=seconds, binds=binds, leaving_s=leaving_s
    )


def perf(*arguments: str) -> subprocess.CompletedProcess[str]:
    hidden = ("SLURM_", "OMPI_", "PMI_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    environment["PYTHONPATH"] = str(Path(tersum.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-m", "tersum", "perf", "--transport", "tcp", *SMALL, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=environment,
    )


def program(folder: Path, text: str) -> None:
    path = folder / PEERS["oneccl"].program
    path.write_text(text)
    path.chmod(0o755)


def libraries(path: Path) -> list[str]:
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return [row["library"] for row in rows]


def test_what_is_not_there_is_skipped_with_the_reason(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    names = [name for name in LIBRARIES if name != "gloo"]
    done = perf("--compare", ",".join(names), "--peers", str(tmp_path), "--json", str(rows))
    assert done.returncode == 0, done.stderr
    assert libraries(rows) == ["tersum", "tersum"]
    for name in names:
        assert f"# {name} skipped: no " in done.stdout


@pytest.mark.parametrize(
    ("changes", "local", "words"),
    [
        ({"op": "broadcast"}, True, "all_reduce of float32, sum"),
        ({"dtype": "bfloat16"}, True, "all_reduce of float32, sum"),
        ({"redop": "max"}, True, "all_reduce of float32, sum"),
        ({}, False, "--ranks"),
    ],
)
def test_what_programs_cannot_do(
    tmp_path: Path, changes: dict[str, str], local: bool, words: str
) -> None:
    program(tmp_path, fake())
    assert why_not("oneccl", tmp_path, sample_options(), True) == ""
    assert words in why_not("oneccl", tmp_path, sample_options(**changes), local)


def test_all_names_every_library_once(tmp_path: Path) -> None:
    done = perf("--compare", "mpich,all", "--peers", str(tmp_path), "--redop", "max")
    assert done.returncode == 0, done.stderr
    for name in LIBRARIES:
        assert done.stdout.count(f"# {name} skipped: ") <= 1
    assert done.stdout.count("# mpich skipped: ") == 1


def test_a_program_that_ends_is_skipped_with_its_last_words(tmp_path: Path) -> None:
    program(tmp_path, "#!/bin/sh\necho no fabric today >&2\nexit 3\n")
    rows = tmp_path / "rows.json"
    done = perf("--compare", "oneccl", "--peers", str(tmp_path), "--json", str(rows))
    assert done.returncode == 0, done.stderr
    assert libraries(rows) == ["tersum", "tersum"]
    assert done.stdout.count("# oneccl skipped: it ended: no fabric today") == 1


def test_a_programs_times_and_wrong_elements_reach_the_table(tmp_path: Path) -> None:
    program(tmp_path, fake(check="ok 5", seconds="0.25"))
    rows = tmp_path / "rows.json"
    done = perf("--compare", "oneccl", "--peers", str(tmp_path), "--json", str(rows))
    assert done.returncode == 1, done.stdout + done.stderr
    measured = [row for row in json.loads(rows.read_text()) if row["library"] == "oneccl"]
    assert [(row["bytes"], row["time_us"], row["wrong"]) for row in measured] == [
        (4096, 250_000, 5),
        (16384, 250_000, 5),
    ]


def test_every_rank_of_a_library_is_told_its_cpus(tmp_path: Path) -> None:
    program(tmp_path, fake())
    written = tmp_path / (PEERS["oneccl"].program + ".cpus")
    done = perf("--compare", "oneccl", "--peers", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    shares = [" ".join(str(cpu) for cpu in share) for share in cpus_by_rank(2)]
    assert written.read_text().splitlines() == shares
    done = perf("--compare", "oneccl", "--peers", str(tmp_path), "--bind", "none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert written.read_text() == ""


def test_a_program_that_does_not_bind_is_no_contender(tmp_path: Path) -> None:
    if not cpus_by_rank(2):
        pytest.skip("ranks are not bound here: the system refuses")
    program(tmp_path, fake(binds=False))
    done = perf("--compare", "oneccl", "--peers", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "# oneccl skipped: it does not bind its ranks" in done.stdout


def test_helpers_of_oneccl_stay_on_their_ranks_cpus() -> None:
    def environment(cpus: tuple[tuple[int, ...], ...]) -> dict[str, str]:
        job = Job(Path("p"), "job", 2, "tcp", "exact", cpus)
        return PEERS["oneccl"].starts(job)[0].environment

    apart = environment(((0, 1), (2, 3)))
    assert apart["CCL_WORKER_AFFINITY"] == "1,3" and "CCL_WORKER_OFFLOAD" not in apart
    alone = environment(((0,), (1,)))
    assert alone["CCL_WORKER_OFFLOAD"] == "0" and "CCL_WORKER_AFFINITY" not in alone
    assert environment(((0,), (0,))) == alone


def test_a_turn_ends_when_all_ranks_have_left_the_library(tmp_path: Path) -> None:
    program(tmp_path, fake(leaving_s=0.3))
    job = PeerJob(PEERS["oneccl"], tmp_path, 3, "tcp", "exact", 20)
    try:
        before = time.monotonic()
        assert job.ask("time 4 2 0") == ["1", "1"]
        assert time.monotonic() - before >= 0.3
        assert job.ask("check 4 0") == ["0"]
    finally:
        job.close()


def test_nonsense_is_no_result(tmp_path: Path) -> None:
    program(tmp_path, fake(check="ok", seconds="1"))
    done = perf("--compare", "oneccl", "--peers", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "# oneccl skipped: it answered 0 numbers to 'check 1024 0'" in done.stdout


def test_a_rank_without_a_job_reports_nothing_of_its_own() -> None:
    turns = Turns(None, in_place=True)
    assert (
        turns.time(10, 3, 2) == [0.0, 0.0, 0.0] and turns.check(10) == 0.0 and turns.failure == ""
    )


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("iters", [1, 4, 20, 500])
def test_values_do_not_overflow_within_a_turn(ranks: int, iters: int) -> None:
    turns = _turns(ranks, sample_options(in_place=True, iters=iters))
    assert 1 <= turns <= iters
    calls = -(-iters // turns) + 1  # the first one is not timed
    assert float(ranks) ** calls < 2.0**110


@pytest.mark.parametrize(("ranks", "most"), [(2, 50), (3, 31), (8, 16)])
def test_batches_that_would_overflow_are_refused(ranks: int, most: int) -> None:
    # In a turn an untimed batch and a timed one.
    assert _turns(ranks, sample_options(in_place=True, iters=7, batch=most)) == 7
    assert float(ranks) ** (2 * most) < 2.0**110
    with pytest.raises(CommandError, match=f"--batch {most + 1} is too much in place"):
        _turns(ranks, sample_options(in_place=True, iters=7, batch=most + 1))


def test_a_batch_is_timed_as_one_over_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    # Late and early in turn, 3 and 5 s, as a rank of a ring may be: the calls come every 4 s.
    now = 0.0
    lasts = itertools.cycle([3.0, 5.0])

    def call() -> None:
        nonlocal now
        now += next(lasts)

    monkeypatch.setattr(perf_rank.time, "perf_counter", lambda: now)
    assert perf_rank._time_batches(call, 4, 1) == [3.0, 5.0, 3.0, 5.0]
    assert perf_rank._time_batches(call, 3, 2) == [4.0, 4.0, 4.0]
    assert perf_rank._time_batches(call, 0, 2) == []


def test_placement_names_a_distance_or_says_that_there_is_none() -> None:
    placement = measure_placement()
    line = placement_line(placement)
    assert line.startswith("# placement: ")
    assert ("ns one way" in line) == (placement is not None)
    assert (farthest_ns(placement) is None) == (placement is None)
    assert len(os.sched_getaffinity(0)) == 1 or placement is not None
    assert _core.core_distance_ns(-1, 0) < 0


def test_placement_tells_the_closest_from_the_most_distant_pair() -> None:
    line = placement_line(Placement((25.4, "0-1"), (155.2, "0-4")))
    assert "CPUs 0-1 25 ns one way for a cache line, CPUs 0-4 155 ns (" in line
    assert farthest_ns(Placement((25.4, "0-1"), (155.26, "0-4"))) == 155.3


def _why_outdated(name: str) -> str:
    """The tool and its programs speak a protocol that may have changed since one was built."""
    built = (BUILT / PEERS[name].program).stat().st_mtime
    sources = [
        path for path in (ROOT / "bench" / "peers").iterdir() if path.suffix in (".cc", ".h")
    ]
    newer = sorted(path.name for path in sources if path.stat().st_mtime > built)
    return f"older than its {newer[0]}: scripts/bench --peers builds it" if newer else ""


def shared_files_of_processes() -> set[str]:
    """Files in shared memory that are named by a process, as oneCCL's are."""
    return {name for name in os.listdir("/dev/shm") if name.partition(":")[0].isdigit()}


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("name", list(PEERS))
def test_a_real_library_sums_exactly(tmp_path: Path, name: str, transport: str) -> None:
    reason = why_not(name, BUILT, sample_options(), True) or _why_outdated(name)
    if reason:
        pytest.skip(f"{name}: {reason}")
    rows = tmp_path / "rows.json"
    before = shared_files_of_processes()
    done = perf(
        *("--compare", name, "--peers", str(BUILT), "--json", str(rows), "--in-place"),
        *("--transport", transport, "--ranks", "2"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    assert [row for row in libraries(rows) if row != "tersum"] == [name, name]
    assert done.stdout.count("# placement: ") == 2
    assert shared_files_of_processes() <= before, "64 MiB a rank stay in memory"
