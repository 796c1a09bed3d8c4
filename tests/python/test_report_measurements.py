"""bench/report/measure_report.py: its commands are understood by what they start, what cannot run
is skipped with the reason, what fails is reported and stops nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "tuning"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "report"))

import auto_sweep
import measure_report
import model_check
import report_needs
import trace_cost
from measure_report import command_of, measure
from report_measurements import CODEC_BENCH, PACKED_BENCH, measurements
from report_needs import Folders, why_not
from report_parts import BENCH, Measurement, Part, calls, parse_perf, perf, span
from report_wires import SWEEPS, TWO_HOSTS, plans_that_fit, predicted_seconds

from tersum.cli.perf_command import make_options
from tersum.topologies import read_topology

NAMES = [
    *(f"topology-{name}" for name in ("pair", "ring4", "ring8", "torus2x2", "torus2x4")),
    *("topology-mesh4", "topology-star8", "sweep-pair", "sweep-ring4", "sweep-ring8"),
    *("sweep-torus2x2", "sweep-torus2x4", "sweep-mesh4", "sweep-star8", "sweep-torus2x2x2"),
    *("sweep-two-hosts-of-two", "link-1gbit", "link-5gbit", "tcp-2", "tcp-4", "shm-2", "shm-4"),
    *("shm-8", "auto-shm", "auto-tcp", "auto-10gbit", "auto-5gbit", "auto-1gbit"),
    *("auto-shm-within", "auto-tcp-within", "auto-shm-loose", "auto-tcp-loose", "kernels"),
    *("floors", "model", "calls"),
    *("codecs-1gbit", "tracing"),
]
PARSERS: dict[str, Any] = {
    "tuning/auto_sweep.py": auto_sweep.make_parser,
    "tuning/model_check.py": model_check.make_parser,
    "tuning/trace_cost.py": trace_cost.make_parser,
}


@pytest.fixture
def empty(tmp_path: Path) -> Folders:
    """No programs of the build, none of other libraries."""
    return Folders(tmp_path / "build", tmp_path / "peers")


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    words = ["measure_report.py", *(str(argument) for argument in arguments)]
    monkeypatch.setattr(sys, "argv", words)
    return measure_report.main()


def tiny(*arguments: str) -> Part:
    return perf(*arguments, *span("4K", "4K"), *calls(2, 0))


@pytest.mark.parametrize("quick", [False, True])
def test_every_command_is_understood(quick: bool) -> None:
    every = measurements(quick)
    assert sorted(one.name for one in every) == sorted(NAMES)
    for part in (part for one in every for part in one.parts):
        if part.kind == "perf":
            options = make_options(parse_perf(part))
            assert options.sizes and options.op == "all_reduce"
        elif part.kind == "script":
            assert (BENCH / part.what).is_file()
            PARSERS[part.what]().parse_args([*part.arguments, "--json", "rows.json"])
        else:
            assert part.what in (CODEC_BENCH, PACKED_BENCH)


def test_speeds_are_held_against_their_floors() -> None:
    """Of codecs, of packed sums and of nf4's decoder: one that is too low fails the measurement."""
    floors = next(one for one in measurements() if one.name == "floors")
    assert [part.what for part in floors.parts] == [CODEC_BENCH, PACKED_BENCH]
    assert all(part.arguments == ("--check",) and not part.verdicts for part in floors.parts)


def test_sweeps_have_every_plan_that_fits_and_no_other() -> None:
    assert plans_that_fit("ring4", "200mbit") == [
        *("ring", "bidirectional_ring", "tree", "hierarchical")
    ]
    assert {"two_step", "one_shot"} <= set(plans_that_fit("mesh4", "200mbit"))
    shape = read_topology(str(TWO_HOSTS))
    assert (shape["ranks"], len(shape["hosts"])) == (4, 2)
    for one in measurements():
        if one.name.startswith("sweep-"):
            assert all("auto" in parse_perf(part).plan for part in one.parts)


def test_a_sweep_takes_about_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    sweeps = [one for one in measurements() if one.name.startswith("sweep-")]
    assert len(sweeps) == len(SWEEPS)
    for one in sweeps:
        assert 20 < sum(predicted_seconds(part) for part in one.parts) < 140, one.name


@pytest.mark.parametrize("name", ["tcp-2", "shm-8"])
def test_absent_libraries_are_a_reason_to_skip(tmp_path: Path, empty: Folders, name: str) -> None:
    one = next(one for one in measurements(quick=True) if one.name == name)
    (tmp_path / f"{name}.json").write_text("[]")
    outcome = measure(one, empty, tmp_path)
    assert outcome.state == "skipped"
    for library in ("openmpi", "mpich", "oneccl"):
        assert f"{library} skipped: no " in outcome.notes[0]
    assert not (tmp_path / f"{name}.json").exists()


def test_spinning_libraries_are_called_less_often_and_beside_tersum() -> None:
    parts = next(one for one in measurements() if one.name == "shm-8").parts
    asked = [parse_perf(part) for part in parts]
    assert [sorted(one.compare) for one in asked[:2]] == [
        ["gloo", "openmpi", "tersum-c++"],
        ["mpich", "oneccl"],
    ]
    assert asked[0].iters > 10 * asked[1].iters and len(asked) == 8
    assert all(part.needs == ("peers",) for part in parts)


def test_without_namespaces_wires_are_skipped(
    tmp_path: Path, empty: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_needs, "_no_namespaces", lambda: "no network namespaces: not root")
    for one in measurements(quick=True):
        wired = "--link" in one.parts[0].arguments or "--topology" in one.parts[0].arguments
        assert (why_not(one.parts[0], empty) == "no network namespaces: not root") == wired
    assert measure(measurements(quick=True)[0], empty, tmp_path).state == "skipped"


def test_absent_benchmarks_are_skipped_and_no_failure(
    tmp_path: Path, empty: Folders, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    status = run_main(
        monkeypatch, tmp_path, "--only", "kernels", "--build", empty.build, "--date", "2026-11-24"
    )
    assert status == 0
    assert "kernels: skipped" in (said := capsys.readouterr().out)
    assert f"no {CODEC_BENCH} in {empty.build}" in said
    facts = json.loads((tmp_path / "machine.json").read_text())
    assert facts["date"] == "2026-11-24" and facts["cores"] >= 1 and not facts["quick"]
    assert "/" not in facts["kernel"] and os.uname().nodename not in facts.values()


def test_rows_of_all_commands_make_one_file(tmp_path: Path, empty: Folders) -> None:
    one = Measurement("two", (tiny("--codec", "exact"), tiny("--codec", "int8")))
    outcome = measure(one, empty, tmp_path)
    assert (outcome.state, outcome.notes) == ("measured", ())
    rows = json.loads((tmp_path / "two.json").read_text())
    assert [row["codec"] for row in rows] == ["exact", "int8/128"]
    assert [path.name for path in tmp_path.iterdir()] == ["two.json"]


def test_what_fails_is_reported_and_the_others_go_on(
    tmp_path: Path, empty: Folders, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    bad = Measurement("bad", (tiny("--codec", "nonsense"),))
    good = Measurement("good", (tiny("--codec", "exact"),))
    monkeypatch.setattr(measure_report, "measurements", lambda quick: [bad, good])
    assert run_main(monkeypatch, tmp_path, "--peers", empty.peers) == 1
    said = capsys.readouterr().out
    assert "bad: failed" in said and "exit status 2" in said and "good: measured" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.json", "machine.json"]


def test_a_verdict_is_no_failure_and_silence_is(tmp_path: Path, empty: Folders) -> None:
    script = tmp_path / "slower_somewhere.py"
    script.write_text(
        "import pathlib, sys\n"
        "if '--rows' in sys.argv: pathlib.Path(sys.argv[-1]).write_text('[{}]')\n"
        "sys.exit(1)\n"
    )
    what = os.path.relpath(script, BENCH)
    verdict = Part("script", ("--rows",), what, verdicts=(1,))
    assert measure(Measurement("a", (verdict,)), empty, tmp_path).state == "measured"
    silent = measure(Measurement("b", (Part("script", (), what, verdicts=(1,)),)), empty, tmp_path)
    assert silent.state == "failed" and silent.notes == ("it wrote no rows",)


def test_commands_run_this_python_and_the_list_runs_nothing(
    tmp_path: Path, empty: Folders, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    command = command_of(tiny("--compare", "all"), empty, tmp_path / "rows.json")
    assert command[:4] == [sys.executable, "-m", "tersum", "perf"]
    assert command[-4:] == ["--peers", str(empty.peers), "--json", str(tmp_path / "rows.json")]
    assert run_main(monkeypatch, tmp_path / "new", "--list") == 0
    said = capsys.readouterr().out
    assert all(f"== {name}" in said for name in NAMES) and not (tmp_path / "new").exists()


def test_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_main(monkeypatch, tmp_path, "--only", "tcp-2,tcp-3")


def test_the_best_fixed_path_is_one_that_might_have_been_taken() -> None:
    def row(codec: str, plan: str, us: float) -> dict[str, Any]:
        return {"codec": codec, "plan": plan, "us": us}

    rows = [
        *(row("exact", "two_step", 9.0), row("exact", "ring", 8.0)),
        *(row("int8/128", "two_step", 5.0), row("int8/128", "ring", 3.0)),
        *(row("nf4/64", "two_step", 1.0), row("exact", "auto", 8.5), row("auto", "auto", 5.5)),
    ]
    model_check.name_best(rows, 4)
    assert [row.get("best") for row in rows[:5]] == [None] * 5
    # A ring of more than two ranks quantizes at every hop, and is never taken unasked.
    assert (rows[5]["best"], rows[6]["best"]) == (["exact", "ring"], ["int8/128", "two_step"])
    model_check.name_best(rows, 2)
    assert (rows[6]["best"], rows[6]["best_us"]) == (["int8/128", "ring"], 3.0)


def test_the_first_half_of_the_calls_is_held_against_the_second() -> None:
    def row(plan: str, predicted: float | None, *halves: float) -> dict[str, Any]:
        us = sum(halves) / 2
        path = {"codec": "exact", "plan": plan, "took": ["exact", "two_step"], "ranks": 4}
        return {**path, "us": us, "us_halves": list(halves), "predicted_us": predicted}

    rows = [
        row("two_step", 10.0, 10.0, 14.0),  # foretold; not by its own first half
        row("ring", 20.0, 11.0, 11.0),  # the other way round
        row("one_shot", None, 30.0, 30.0),
        row("auto", None, 12.0, 12.0),
    ]
    model_check.name_best(rows, 4)
    assert rows[3]["best"] == ["exact", "ring"]
    assert rows[3]["first_half_over_best"] == pytest.approx(14 / 11)
    said = model_check.summary(rows)
    assert "30 %: 1 of 2, by the first half of the calls 1;" in said
    assert "5 %: 0 of 1, by the first half 0" in said
    # Of two ranks a ring is two_step, so that its time is that path's noise.
    for one in rows:
        one["ranks"] = 2
    model_check.name_best(rows, 2)
    assert rows[3]["first_half_over_best"] == 1
    assert "5 %: 1 of 1, by the first half 1" in model_check.summary(rows)
    assert not model_check.same_path(["exact", "ring"], ["int8/128", "two_step"], 2)


def timed(codec: str, time_us: float) -> dict[str, Any]:
    """A row of ``tersum perf`` as the sweep of ``auto`` reads it."""
    return {
        **{"bytes": 4096, "ranks": 2, "time_us": time_us},
        "explanation": f"{codec} one_shot: said more",
    }


@pytest.mark.parametrize(
    ("auto_us", "tries", "slower"),
    [
        ([100.0], 1, False),
        ([103.0], 1, False),  # at the bar
        ([104.0, 102.0], 2, False),
        ([104.0, 104.0, 90.0], 3, False),
        ([104.0, 104.0, 104.0], 3, True),
    ],
)
def test_what_seems_slower_is_measured_again(
    auto_us: list[float], tries: int, slower: bool
) -> None:
    rows = [[timed("exact", 100), timed("int8/128", time_us)] for time_us in auto_us]
    looks = iter(rows[1:])
    found = auto_sweep.compare(
        *rows[0], lambda: [timed("exact", 1), timed("exact", 9), *next(looks)]
    )
    assert (found["tries"], found["slower"]) == (tries, slower)
    assert (found["exact_took"], found["auto_took"]) == ("exact one_shot", "int8/128 one_shot")
    assert not found["same_path"] and next(looks, None) is None


def test_a_microsecond_is_no_loss() -> None:
    assert not auto_sweep.is_slower(timed("exact", 4), timed("exact", 5))
    assert auto_sweep.is_slower(timed("exact", 4), timed("exact", 5.1))
