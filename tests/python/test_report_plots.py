"""bench/report/plot_report.py: made-up rows of every measurement give all pictures and tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "report"))

import plot_report
from plot_choices import taken_on_wires, taken_without
from plot_links import over_bare
from plot_peers import relative_times
from plot_topologies import gains
from report_samples import sample_rows, write_samples
from report_wires import SWEEPS, sweep_name
from sweep_rows import choice_table, choices, plan_taken, prediction_table

PICTURES = [
    *("auto.svg", "calls.svg", "choices.svg", "kernels.svg", "links.svg", "model.svg"),
    *("peers-shm.svg", "peers-tcp.svg", "prediction.svg"),
    *("sweep-bf16.svg", "sweep-int4.svg", "sweep.svg", "topologies.svg"),
]


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    words = ["plot_report.py", *(str(argument) for argument in arguments)]
    monkeypatch.setattr(sys, "argv", words)
    return plot_report.main()


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_samples(folder)
    return folder


def test_every_picture_is_drawn(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run_main(monkeypatch, samples, tmp_path / "figures", "--tables") == 0
    written = sorted((tmp_path / "figures").iterdir())
    assert [path.name for path in written] == PICTURES
    for path in written:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    said = capsys.readouterr().out
    assert "left out" not in said
    assert "| ring4 | int8/128 | 64K |" in said and "| two hosts of two | bf16 | " in said


def test_the_same_rows_give_the_same_file(samples: Path, tmp_path: Path) -> None:
    first, second = (
        plot_report.draw(samples, tmp_path / name, ["calls", "topologies"]) for name in "ab"
    )
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_what_was_not_measured_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run_main(monkeypatch, tmp_path, tmp_path / "figures", "--tables") == 0
    said = capsys.readouterr().out
    for group in (*plot_report.GROUPS, "tables"):
        assert f"{group}: left out, there is none of " in said
    assert not list((tmp_path / "figures").iterdir())


def test_unknown_groups_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_main(monkeypatch, tmp_path, tmp_path, "peers-udp")


def sweep_row(plan: str, time_us: float, **more: Any) -> dict[str, Any]:
    row = {"codec": "bf16", "bytes": 1 << 20, "plan": plan, "time_us": time_us}
    return {**row, "predicted_us": 100.0, **more}


def test_tables_of_a_sweep() -> None:
    why = "bf16 tree, expected 1.0 us: the fastest plan measured (weighed: bf16 ring 2.0 us)"
    rows = [
        sweep_row("auto", 125.0, explanation=why),
        sweep_row("ring", 100.0),
        sweep_row("tree", 120.0, predicted_us=None),
    ]
    assert [plan_taken(row) for row in rows] == ["tree", "ring", "tree"]
    (choice,) = choices(rows)
    assert (choice.best_plan, choice.auto_plan) == ("ring", "tree")
    assert choice_table({"ring4": rows})[-1] == (
        "| ring4 | bf16 | 1M | ring | 0.10 ms | tree | 0.12 ms | 1.25 |"
    )
    assert prediction_table({"ring4": rows})[-1] == "| ring4 | bf16 | 1 of 1 | 1.00 | ring, 1M |"


def test_choices_of_shaped_wires_and_of_none(samples: Path, tmp_path: Path) -> None:
    wires = taken_on_wires(sample_rows(sweep_name(sweep)) for sweep in SWEEPS)
    assert {one.asked for one in wires} == {"bf16", "int8/128", "int4/128"}
    assert all(one.over_best > 0.9 for one in wires)
    unshaped = taken_without(sample_rows("model"))
    assert {(one.asked, one.over_best) for one in unshaped} == {("auto", 10 / 9.8)}
    (tmp_path / "model.json").write_bytes((samples / "model.json").read_bytes())
    assert plot_report.draw(tmp_path, tmp_path, ["choices"]) == [tmp_path / "choices.svg"]
    fixed = [row for row in sample_rows("model") if row["codec"] != "auto"]
    (tmp_path / "model.json").write_text(json.dumps(fixed))
    assert plot_report.draw(tmp_path, tmp_path, ["choices"]) == []


def test_ratios_are_of_the_same_size_and_codec() -> None:
    rows = [
        {"library": library, "codec": codec, "bytes": size, "time_us": time}
        for library, codec, size, time in (
            ("tersum", "exact", 1, 9.0),
            ("tersum-c++", "exact", 1, 8.0),
            ("tersum", "exact", 2, 10.0),
            ("tersum", "int8/128", 2, 5.0),
            ("oneccl", "exact", 1, 16.0),
            ("oneccl", "exact", 2, 15.0),
            ("bare", "exact", 2, 8.0),
        )
    ]
    assert relative_times(rows, 1, "exact") == {"oneccl": 2.0, "exact": 1.0}
    assert relative_times(rows, 2, "int8/128") == {"oneccl": 3.0, "exact": 2.0, "int8/128": 1.0}
    assert relative_times(rows, 1, "int8/128") == {}
    assert over_bare(rows, "exact") == [(2, 1.25)]


def test_gains_are_over_the_bf16_wire() -> None:
    found = gains(sample_rows("topology-ring4"))
    assert found == pytest.approx({"int8/128": 16 / 8.125, "int4/128": 16 / 4.125})
