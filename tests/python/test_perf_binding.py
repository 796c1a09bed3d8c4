"""Which CPUs the local ranks of ``tersum perf`` keep to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tersum.cli import main
from tersum.cli.perf_binding import binding_text, cpus_by_rank, on_all_cpus
from tersum.cli.perf_options import PerfOptions
from tersum.cli.perf_spawn import child_code

sys.path.insert(0, str(Path(__file__).resolve().parent))

from perf_samples import sample_options


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """``machine("0,4", "1,5")``: a machine whose cores have these hyper-threads, all of them
    ours; the pattern that names the files with what its kernel says."""

    def build(*cores: str) -> str:
        usable: set[int] = set()
        for core in cores:
            for cpu in core.split(","):
                (tmp_path / cpu).write_text(core + "\n", encoding="ascii")
                usable.add(int(cpu))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable)
        monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
        return f"{tmp_path}/{{}}"

    return build


def test_ranks_share_cores_evenly_and_keep_hyper_threads_together(machine: Any) -> None:
    folder = machine("0,4", "1,5", "2,6", "3,7")
    assert cpus_by_rank(2, folder) == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert cpus_by_rank(3, folder) == ((0, 4), (1, 5), (2, 6)), "one core stays idle"
    assert cpus_by_rank(4, folder) == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_more_ranks_than_cores_have_hyper_threads_of_their_own(machine: Any) -> None:
    folder = machine("0,2", "1,3")
    assert cpus_by_rank(4, folder) == ((0,), (1,), (2,), (3,))
    assert cpus_by_rank(3, folder) == ((0,), (1,), (2,))


def test_more_ranks_than_cpus_share_them_evenly(machine: Any) -> None:
    folder = machine("0", "1")
    assert cpus_by_rank(3, folder) == ((0,), (0,), (1,))
    assert cpus_by_rank(8, folder) == 4 * ((0,),) + 4 * ((1,),)


def test_cpus_of_which_the_kernel_says_nothing_are_cores(machine: Any) -> None:
    machine("0,1")
    assert cpus_by_rank(2, "/nowhere/{}") == ((0,), (1,))


def test_where_the_system_refuses_nobody_is_bound(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    folder = machine("0", "1")
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert cpus_by_rank(2, folder) == ()


def test_a_child_is_bound_before_it_imports_anything() -> None:
    cpu = min(os.sched_getaffinity(0))
    code = child_code((cpu,)).replace(child_code(()), "print(sorted(os.sched_getaffinity(0)))")
    seen = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert seen.strip() == f"[{cpu}]"


def test_cpus_travel_with_the_options() -> None:
    for options in (sample_options(cpus=((0, 2), (1, 3))), sample_options()):
        assert PerfOptions.from_json(json.loads(json.dumps(options.to_json()))) == options


def test_cpus_are_written_as_taskset_does() -> None:
    assert binding_text(((0, 1, 2, 8, 9), (3,), (4, 6))) == "0-2,8-9 | 3 | 4,6"


def test_children_of_a_bound_process_may_use_the_cpus_of_all() -> None:
    cpus = tuple((cpu,) for cpu in sorted(os.sched_getaffinity(0)))
    if len(cpus) < 2:
        pytest.skip("this process may use one CPU only")
    show = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus[0])
    try:
        with on_all_cpus(cpus):
            seen = subprocess.check_output(show, text=True)
        assert os.sched_getaffinity(0) == set(cpus[0])
    finally:
        os.sched_setaffinity(0, before)
    assert seen.strip() == str(sorted(before))


@pytest.mark.parametrize("bind", ["cores", "none"])
def test_the_table_says_where_ranks_run(capsys: Any, bind: str) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this process may use one CPU only")
    sizes = ["--min-bytes", "4K", "--max-bytes", "4K", "--iters", "2"]
    assert main(["perf", "--bind", bind, "--codec", "exact", *sizes]) == 0
    bound = f"# CPUs of each rank: {binding_text(cpus_by_rank(2))}"
    assert (bound in capsys.readouterr().out) == (bind == "cores")
