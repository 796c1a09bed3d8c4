"""``tersum plan``: predictions, the verdict, misfits, JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tersum
from tersum.cli import main
from tersum.cli.plan_study import Prediction, Study, study_plans

GOODPUT = 125e6 * 1448 / 1514

LINE = """{
  "name": "line",
  "rate": "1gbit",
  "hosts": ["a", "b", "c"],
  "links": [{"between": ["a", "b"]},
            {"between": ["b", "c"]}]
}
"""


def plan_json(capsys: Any, *arguments: str) -> dict[str, Any]:
    assert main(["plan", "--json", *arguments]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


@pytest.mark.parametrize(
    ("topology", "winner", "share"),
    [
        ("pair", "two_step", 1),
        ("ring4", "bidirectional_ring", 0.75),
        ("ring8", "bidirectional_ring", 0.875),
        ("torus2x2", "bidirectional_ring", 0.75),
        ("torus2x4", "torus", 7 / 12),
        ("torus4x4", "torus", 15 / 32),
        ("mesh4", "two_step", 0.5),
        ("star8", "halving_doubling", 1.75),  # three flows a port, seven in two_step
    ],
)
@pytest.mark.parametrize("codec", ["exact", "bf16", "int8", "int4"])
def test_the_winner_is_near_its_wire_bound(
    capsys: Any, topology: str, winner: str, share: float, codec: str
) -> None:
    facts = plan_json(capsys, "--topology", topology, "--bytes", "64M", "--codec", codec)
    best = facts["plans"][0]
    assert best["plan"] == winner
    wire_bits = tersum.codec_info(codec).wire_bits
    assert facts["wire_bytes"] == pytest.approx((64 << 20) * wire_bits / 32, rel=1e-6)
    assert facts["bound_s"] == pytest.approx(share * facts["wire_bytes"] / GOODPUT, rel=1e-6)
    assert facts["bound_s"] < best["time_s"] < 1.03 * facts["bound_s"]
    assert best["dominant"] == "wire"
    assert facts["verdict"].startswith(f"{winner} wins")
    # Nothing gains 3 % on the rule's plan behind a switch, nor on a square.
    open_plan = {"star8": "two_step", "torus2x2": "torus"}.get(topology, winner)
    assert facts["open_plan"] == open_plan
    told = f"Calls with an open plan take {open_plan} " in facts["verdict"]
    assert told == (open_plan != winner)


@pytest.mark.parametrize(
    ("arguments", "open_plan"),
    [
        (("star8", "reduce_scatter", "int8"), "two_step"),
        (("ring4", "all_to_all", "exact"), "tree"),
        (("ring4", "gather", "exact"), "tree"),
        (("mesh4", "all_gather", "exact"), "two_step"),
        # Refused: their scales are powers of two, and the rule's plan codes at every hop.
        (("ring8", "all_reduce", "mxfp8"), ""),
        # Refused: it adds in an order for which there are no links.
        (("ring4", "reduce_scatter", "lut2"), ""),
    ],
)
def test_what_calls_with_an_open_plan_take(
    capsys: Any, arguments: tuple[str, str, str], open_plan: str
) -> None:
    topology, op, codec = arguments
    call = ["plan", "--json", "--topology", topology, "--bytes", "16M", "--op", op]
    main([*call, "--codec", codec])
    assert json.loads(capsys.readouterr().out)["open_plan"] == open_plan


def test_the_table_shows_every_plan_and_why_one_wins(capsys: Any) -> None:
    assert main(["plan", "--topology", "torus4x4", "--bytes", "64M", "--codec", "int8"]) == 0
    out = capsys.readouterr().out
    assert "# all_reduce of 64 MiB on torus4x4: 16 ranks, int8 sends 16.25 MiB" in out
    for plan in ("torus", "hierarchical", "bidirectional_ring", "tree", "ring"):
        assert f"\n{plan} " in out
    assert (
        "does not fit: two_step needs a link between rank 0 and rank 2; topology torus4x4 has none"
    ) in out
    last = out.splitlines()[-1]
    assert last.startswith("torus wins: 0.57")
    assert "busiest link carries" in last


def test_small_arrays_are_latency(capsys: Any) -> None:
    facts = plan_json(capsys, "--topology", "mesh8", "--bytes", "1K", "--latency-us", "50")
    assert facts["plans"][0]["plan"] == "one_shot"
    assert facts["plans"][0]["dominant"] == "latency"
    assert facts["plans"][0]["time_s"] > 50e-6


def test_a_topology_file(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "line.json"
    path.write_text(LINE)
    facts = plan_json(capsys, "--topology", str(path), "--bytes", "1M")
    assert facts["topology"] == "line"
    assert facts["ranks"] == 3
    misfits = {plan["plan"]: plan["misfit"] for plan in facts["plans"] if "misfit" in plan}
    assert misfits["ring"] == (
        "ring needs a ring of links through all ranks; topology line has no link between rank 0 "
        "and rank 2, and no other order of them was found"
    )
    # A name without a suffix is a file if there is one.
    bare = tmp_path / "bare"
    bare.write_text(LINE)
    assert plan_json(capsys, "--topology", str(bare), "--bytes", "1M")["topology"] == "line"


def test_every_collective_is_predicted(capsys: Any) -> None:
    for op in ("reduce_scatter", "all_gather", "broadcast", "all_to_all", "gather", "scatter"):
        facts = plan_json(capsys, "--topology", "mesh4", "--bytes", "4M", "--op", op)
        assert facts["op"] == op
        assert 0 < facts["bound_s"] < facts["plans"][0]["time_s"]


def test_rates_cores_and_types_count(capsys: Any) -> None:
    def best(*arguments: str) -> dict[str, Any]:
        plans = plan_json(capsys, "--topology", "ring8", "--bytes", "64M", *arguments)["plans"]
        return dict(plans[0])

    slow, fast = best("--rate", "1gbit"), best("--rate", "2gbit")
    assert slow["wire_s"] == pytest.approx(2 * fast["wire_s"])
    alone = best("--rate", "400gbit")
    assert alone["dominant"] != "wire"
    together = best("--rate", "400gbit", "--one-machine", "--cores", "2")
    assert together["cpu_s"] == pytest.approx(4 * alone["cpu_s"], rel=0.01)
    # Integers travel as they are, whatever the codec.
    exact = best("--dtype", "int32", "--codec", "int8")
    assert exact["wire_s"] == pytest.approx(best("--codec", "exact")["wire_s"])


def test_a_thousand_ranks_are_quick_enough_for_a_command(capsys: Any) -> None:
    facts = plan_json(capsys, "--topology", "torus32x32", "--bytes", "64M")
    assert facts["ranks"] == 1024
    assert facts["plans"][0]["plan"] == "torus"


def test_parts_of_ranks_that_are_no_neighbours_travel_by_a_tree(capsys: Any) -> None:
    for op in ("gather", "scatter", "all_to_all"):
        assert main(["plan", "--topology", "ring4", "--bytes", "1M", "--op", op]) == 0
        assert "tree is the only plan that fits" in capsys.readouterr().out


def test_no_plan_that_fits_is_said() -> None:
    misfit = Prediction("two_step", "no link", 0, 0, 0, 0, 0, 0, "")
    study = Study("gather", 1 << 20, "ring4", 4, 4, 260e3, 1e-3, (misfit,))
    assert study.verdict() == "no plan of gather fits ring4"


def test_a_codec_may_leave_no_plan(capsys: Any) -> None:
    assert main(["plan", "--topology", "ring4", "--bytes", "1M", "--codec", "lut2"]) == 1
    assert "no plan of all_reduce fits ring4 and the codec" in capsys.readouterr().out


def test_agreed_scales_of_a_reduce_scatter_cross_the_wires_twice(capsys: Any) -> None:
    facts = plan_json(
        capsys, "--topology", "mesh4", "--bytes", "16M", "--op", "reduce_scatter", "--codec", "lut2"
    )
    codes, scales = 2 / 32, 2 * 16 / 32 / 32
    assert facts["wire_bytes"] == pytest.approx((16 << 20) * (codes + scales), rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--topology", "line4", "--bytes", "1M"], 1, 'no topology is named "line4"'),
        (["--topology", "ring4", "--bytes", "many"], 2, "--bytes: bad size 'many'"),
        (["--topology", "ring4", "--bytes", "999999999999G"], 2, "at most 8 PiB"),
        (["--topology", "ring4", "--bytes", "1M", "--codec", "int9"], 1, "int9"),
        (["--topology", "ring4", "--bytes", "1M", "--dtype", "int5"], 1, "int5"),
        (["--topology", "ring4", "--bytes", "1M", "--rate", "fast"], 1, '"fast" is no rate'),
        (["--topology", "ring4", "--bytes", "1M", "--rate", "0gbit"], 1, "must be positive"),
        (["--topology", "ring4", "--bytes", "1M", "--rate", "1e300tbit"], 1, "1000000 tbit"),
        (["--topology", "ring4", "--bytes", "1M", "--latency-us", "-1"], 1, "latency"),
        (["--topology", "ring4", "--bytes", "1M", "--latency-us", "1e9"], 1, "and a minute"),
        (["--topology", "ring4", "--bytes", "1M", "--cores", "0"], 1, "cores is 0"),
        (["--topology", "no/such/file.json", "--bytes", "1M"], 1, "cannot read the topology"),
    ],
)
def test_what_makes_no_sense_is_refused(
    capsys: Any, arguments: list[str], status: int, message: str
) -> None:
    assert main(["plan", *arguments]) == status
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINE.replace('"b", "c"]}]', '"b", "d"]}]'), 'line 6: no host or switch is named "d"'),
        (LINE.replace('"c"],', '"c",\n "d"],'), "line 5: d cannot be reached from a"),
        (LINE.replace('"rate": "1gbit",', ""), 'line 5: the link has no "rate"'),
        ("ring8", "line 1: it must be a JSON object"),
        ("{", "line 1: the text ends before it is complete"),
    ],
)
def test_a_wrong_file_names_the_line(capsys: Any, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    assert main(["plan", "--topology", str(path), "--bytes", "1M"]) == 1
    assert message in capsys.readouterr().err


def prediction(plan: str, **values: Any) -> Prediction:
    given: dict[str, Any] = {
        "misfit": "",
        "time_s": 1.0,
        "wire_s": 0.1,
        "cpu_s": 0.1,
        "memory_s": 0.0,
        "chain_s": 0.1,
        "hops": 2,
        "dominant": "wire",
    }
    return Prediction(plan=plan, **{**given, **values})


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"wire_s": 0.2}, "busiest link carries 0.500 of the bytes"),
        ({"dominant": "codec", "cpu_s": 0.4}, "it needs 0.250 of the core time"),
        ({"dominant": "latency", "hops": 7}, "2 dependent messages instead of 7"),
        ({"dominant": "latency", "chain_s": 0.4}, "own way takes 0.250 of the time"),
        ({"dominant": "memory"}, "it overlaps better"),
    ],
)
def test_the_verdict_says_what_the_runner_up_spends_more_on(
    second: dict[str, Any], reason: str
) -> None:
    plans = (prediction("a"), prediction("b", time_s=2.0, **second))
    study = Study("all_reduce", 1, "t", 2, 2, 1, 1, plans)
    assert reason in study.verdict()
    only = Study("all_reduce", 1, "t", 2, 2, 1, 1, (plans[0], prediction("c", misfit="no")))
    assert only.verdict() == "a is the only plan that fits"
    assert [plan.plan for plan in only.misfits] == ["c"]


def test_the_study_is_a_function_too() -> None:
    study = study_plans("ring8", size=1 << 20)
    assert study.fitting[0].plan == "bidirectional_ring"
    with pytest.raises(tersum.InvalidArgumentError, match="use one of all_reduce"):
        study_plans("ring8", op="sum", size=1)


def test_the_codec_may_be_timed_here(capsys: Any) -> None:
    call = ("--topology", "mesh4", "--bytes", "16M", "--rate", "1000gbit", "--codec", "nf4/64")
    documented, measured = plan_json(capsys, *call), plan_json(capsys, *call, "--measure")
    assert not documented["measured"]
    assert measured["measured"]
    cores = [
        {plan["plan"]: plan["cpu_s"] for plan in facts["plans"]} for facts in (documented, measured)
    ]
    assert all(0 < cores[1][plan] != seconds for plan, seconds in cores[0].items())
    # Timed once: the same numbers again.
    assert plan_json(capsys, *call, "--measure") == measured
    # What cannot be timed alone keeps the documented speed, and says so.
    call = ("--topology", "pair", "--bytes", "1M", "--codec", "sum8/256")
    assert plan_json(capsys, *call, "--measure") == plan_json(capsys, *call)


@pytest.mark.parametrize(
    ("codec", "bits"),
    # Contributions and sums beside the scales that ranks agree on.
    [("lut2/32", 2 + 0.5), ("sum8/256", (8 + 9) / 2 + 16 / 256), ("int8/128", 8 + 16 / 128)],
)
def test_scales_that_are_agreed_on_travel_too(capsys: Any, codec: str, bits: float) -> None:
    facts = plan_json(capsys, "--topology", "pair", "--bytes", "16M", "--codec", codec)
    assert facts["wire_bytes"] == pytest.approx((16 << 20) * bits / 32, rel=1e-3)
    assert facts["bound_s"] == pytest.approx(facts["wire_bytes"] / GOODPUT, rel=1e-6)


@pytest.mark.parametrize("codec", ["lut2", "sum:exp", "mxfp8"])
def test_plans_that_a_codec_does_not_sum_by_are_misfits(capsys: Any, codec: str) -> None:
    facts = plan_json(capsys, "--topology", "mesh4", "--bytes", "16M", "--codec", codec)
    assert facts["plans"][0]["plan"] == "two_step"
    ring = next(plan for plan in facts["plans"] if plan["plan"] == "ring")
    assert "does not sum by it" in ring["misfit"]
