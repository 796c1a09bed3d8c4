"""Groups on a topology, and topologies wired of network namespaces."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum
from tersum.cli import shaped_link
from tersum.cli.network_namespaces import NamespaceError
from tersum.cli.plan_study import study_plans
from tersum.cli.wired_topology import WiredTopology, unshaped_latency_us, wired_text
from tersum.topologies import describe_topology, read_topology

sys.path.insert(0, str(Path(__file__).resolve().parent))

from perf_runs import perf, rows_of

Run = Callable[..., list[Any]]
FEW = ("--iters", "3", "--warmup", "1")
REASON = shaped_link.unavailable_reason()
needs_links = pytest.mark.skipif(REASON is not None, reason=f"no shaped links: {REASON}")

PROBE = """
import errno, socket, sys
for address in sys.argv[1:]:
    with socket.socket() as probe:
        probe.settimeout(5)
        print(errno.errorcode.get(probe.connect_ex((address, 9)), "0"), flush=True)
"""


@pytest.mark.parametrize("name", ["pair", "ring5", "torus2x3", "star4", "mesh3"])
def test_sums_on_named_topologies(run_group: Run, name: str) -> None:
    size = tersum.read_topology(name)["ranks"]

    def body(group: tersum.Communicator) -> Any:
        x = np.arange(10_007, dtype=np.int64) + group.rank
        quantized = group.all_reduce(x.astype(np.float32))
        return group.all_reduce(x), quantized.tobytes(), group.all_gather(x[:3])

    results = run_group(size, body, topology=name)
    expected = size * np.arange(10_007) + size * (size - 1) // 2
    gathered = np.concatenate([np.arange(3) + rank for rank in range(size)])
    for total, _, gather in results:
        assert (total == expected).all() and (gather == gathered).all()
    assert len({bits for _, bits, _ in results}) == 1


def test_a_topology_file(run_group: Run, tmp_path: Path) -> None:
    file = tmp_path / "line.json"
    file.write_text(
        json.dumps(
            {
                "hosts": [{"name": "a", "ranks": [0, 1]}, "b", "c"],
                "links": [
                    {"between": ["a", "b"], "rate": "1gbit"},
                    {"between": ["b", "c"], "rate": "1gbit"},
                ],
            }
        )
    )
    results = run_group(
        4, lambda group: group.all_reduce(np.full(1000, 2.0), codec="exact"), topology=str(file)
    )
    assert all((out == 8).all() for out in results)


@pytest.mark.parametrize(
    ("topology", "size", "words"),
    [
        ("ring4", 3, "topology ring4 has 4 ranks, the group 3"),
        ("blob7", 7, "blob7"),
        ("ring1", 1, "ring1"),
        ("nowhere.json", 2, "cannot read topology nowhere.json"),
        ('{"hosts": ["a", "b"],\n "links": [{"between": ["a", "x"]}]}', 2, "line 2"),
    ],
)
def test_bad_topologies(topology: str, size: int, words: str) -> None:
    store = tersum.MemoryStore()
    with pytest.raises(tersum.InvalidArgumentError, match=words):
        tersum.Communicator(0, size, store, topology=topology)


def test_a_plan_that_the_wires_do_not_allow(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        words = "two_step needs a link between rank 0 and rank 2; topology ring4 has none"
        with pytest.raises(tersum.TersumError, match=words):
            group.all_reduce(np.ones(10, np.float32), plan="two_step")

    run_group(4, body, topology="ring4")


def test_splitting_into_neighbours_and_others(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> Any:
        pair = group.split(group.rank // 2)
        assert pair is not None
        total = pair.all_reduce(np.array([group.rank]))[0]
        pair.close()
        with pytest.raises(tersum.UnsupportedError, match="no link between them"):
            group.split(group.rank % 2)
        return total, group.all_reduce(np.array([1]))[0]

    assert run_group(4, body, topology="ring4") == [(1, 4), (1, 4), (5, 4), (5, 4)]


def test_shapes() -> None:
    shape = tersum.read_topology("star3", rate="250mbit", latency_us=7)
    assert len(shape["hosts"]) == 3
    assert len(shape["switches"]) == 1 and len(shape["links"]) == 3
    assert all(link["bits_per_s"] == pytest.approx(250e6) for link in shape["links"])
    assert all(link["latency_us"] == pytest.approx(7) for link in shape["links"])
    assert tersum.read_topology("torus2x4")["dims"] == [2, 4]


def _reached(wired: WiredTopology, rank: int) -> list[bool]:
    others = [wired.addresses[r] for r in range(wired.ranks) if r != rank]
    argv = [sys.executable, "-c", PROBE, *others]
    with wired.popen(rank, argv, stdout=-1, text=True) as child:
        assert child.stdout is not None
        answers = child.stdout.read().split()
    assert set(answers) <= {"ECONNREFUSED", "ENETUNREACH"}
    return [answer == "ECONNREFUSED" for answer in answers]


@needs_links
def test_a_node_reaches_its_neighbours_and_nobody_else() -> None:
    with WiredTopology(tersum.read_topology("ring4")) as wired:
        assert _reached(wired, 0) == [True, False, True]
        assert _reached(wired, 2) == [False, True, True]
    with WiredTopology(tersum.read_topology("star3")) as wired:
        assert _reached(wired, 1) == [True, True]
    with WiredTopology(tersum.read_topology("torus2x4")) as wired:
        # (0, 1): beside it (0, 0) and (0, 2), across (1, 1), which is rank 5.
        assert _reached(wired, 1) == [True, True, False, False, True, False, False]


TWO_HOSTS: dict[str, Any] = {
    "hosts": [{"name": "a", "ranks": [0, 1]}, {"name": "b", "ranks": [2, 3]}],
    "links": [{"between": ["a", "b"], "rate": "200mbit"}],
}


@needs_links
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("pair", "two_step"),
        ("ring8", "bidirectional_ring"),
        ("torus2x2", "torus"),
        ("torus2x4", "torus"),
        ("mesh4", "halving_doubling"),
        ("star8", "two_step"),
    ],
)
def test_every_named_topology_is_wired(name: str, plan: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    size = ("--min-bytes", "256K", "--max-bytes", "256K")
    plans = ("--plan", f"auto,{plan}")
    done = perf(*FEW, "--topology", name, "--codec", "int8", *plans, *size, "--json", str(path))
    assert done.returncode == 0, done.stderr
    rows = rows_of(path)
    assert [row["plan"] for row in rows] == ["auto", plan]
    for row in rows:
        assert row["ranks"] == tersum.read_topology(name)["ranks"] and row["wrong"] == 0
        assert row["wire_bound_us"] > 0 and row["predicted_us"] > 0


@needs_links
def test_other_libraries_do_not_pass_a_topology_by(tmp_path: Path) -> None:
    done = perf(
        *(*FEW, "--topology", "ring4", "--min-bytes", "4K", "--max-bytes", "4K"),
        *("--compare", "all", "--peers", str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    for name in ("openmpi", "mpich", "oneccl"):
        assert f"# {name} skipped: it needs ranks that tersum perf starts itself" in done.stdout
    reason = "its ranks are not on these wires: use --link"
    if importlib.util.find_spec("torch") is None:
        reason = "no torch here"
    assert f"# gloo skipped: {reason}" in done.stdout


def test_latencies_that_wires_here_have_are_theirs() -> None:
    def latencies(latency_us: float) -> tuple[float, float]:
        text = json.dumps({**TWO_HOSTS, "latency_us": latency_us})
        given = tersum.read_topology(wired_text(text, "1gbit"))["links"][0]["latency_us"]
        return unshaped_latency_us(tersum.read_topology(text)), given

    assert latencies(20) == (0, pytest.approx(20))
    assert latencies(5) == (0, pytest.approx(5))
    assert latencies(21) == (pytest.approx(21), pytest.approx(20))
    assert unshaped_latency_us(tersum.read_topology('{"hosts": ["alone"]}')) == 0


@needs_links
def test_a_latency_that_no_wire_here_has_is_told(tmp_path: Path) -> None:
    file = tmp_path / "far.json"
    file.write_text(json.dumps({**TWO_HOSTS, "latency_us": 30_000}))
    path = tmp_path / "rows.json"
    size = ("--min-bytes", "64K", "--max-bytes", "64K")
    done = perf(*FEW, "--topology", str(file), "--codec", "int8", *size, "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert "# a latency of 30000 us is described but not shaped" in done.stdout
    assert rows_of(path)[0]["predicted_us"] < 30_000


@needs_links
@pytest.mark.parametrize(
    ("topology", "plans"),
    [("ring4", "ring,bidirectional_ring"), (TWO_HOSTS, "two_step,hierarchical")],
)
def test_perf_measures_named_plans_on_wires(topology: Any, plans: str, tmp_path: Path) -> None:
    if not isinstance(topology, str):
        file = tmp_path / "two_hosts.json"
        file.write_text(json.dumps(topology))
        topology = str(file)
    path = tmp_path / "rows.json"
    link = ("--link", "200mbit") if topology == "ring4" else ()
    size = ("--min-bytes", "64K", "--max-bytes", "64K")
    done = perf(
        *(*FEW, "--topology", topology, "--plan", plans, "--codec", "exact,int8"),
        *(*link, *size, "--json", str(path)),
    )
    assert done.returncode == 0, done.stderr
    rows = rows_of(path)
    assert {(row["plan"], row["codec"]) for row in rows} == {
        (plan, codec) for plan in plans.split(",") for codec in ("exact", "int8/128")
    }
    bounds = {}
    for row in rows:
        assert row["bytes"] == 65_536 and row["ranks"] == 4 and row["wrong"] == 0
        assert row["time_us"] > 0 and row["predicted_us"] > 0 and row["wire_bound_us"] > 0
        bounds[row["codec"]] = row["wire_bound_us"]
        # A bucket of 72 kB lets such a call through at once: the ratio says nothing, but is there.
        assert row["wire_ratio"] == pytest.approx(row["time_us"] / row["wire_bound_us"])
    assert bounds["int8/128"] < 0.3 * bounds["exact"]


def test_wires_have_buckets_and_ranks_know_them() -> None:
    named = tersum.read_topology(wired_text("star3", "250mbit"))
    assert [link["burst_bytes"] for link in named["links"]] == [73_728] * 3
    assert [link["bits_per_s"] for link in named["links"]] == [250e6] * 3
    text = json.dumps({**TWO_HOSTS, "burst_bytes": 9_000})
    assert tersum.read_topology(wired_text(text, "1gbit"))["links"][0]["burst_bytes"] == 9_000
    own = {**TWO_HOSTS, "links": [{**TWO_HOSTS["links"][0], "burst_bytes": 0}]}
    wired = tersum.read_topology(wired_text(json.dumps(own), "1gbit"))
    assert wired["links"][0]["burst_bytes"] == 73_728
    assert tersum.read_topology(wired_text('{"hosts": ["alone"]}', "1gbit"))["links"] == []


@needs_links
def test_a_wire_has_the_bucket_that_its_file_names() -> None:
    shape = tersum.read_topology(json.dumps({**TWO_HOSTS, "burst_bytes": 40_000}))
    with WiredTopology(shape) as wired:
        argv = ["tc", "-n", wired.namespaces[0], "qdisc", "show", "dev", "wire0"]
        shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert " burst 40000b " in shown


def test_a_bucket_smaller_than_a_packet_is_refused() -> None:
    shape = tersum.read_topology(json.dumps({**TWO_HOSTS, "burst_bytes": 1_500}))
    with pytest.raises(NamespaceError, match=r"between a and b has a burst_bytes of 1500, .* 8192"):
        WiredTopology(shape)


def test_a_tree_spends_what_buckets_saved() -> None:
    times = {
        wires: next(
            plan.time_s
            for plan in study_plans(wires, size=128 * 1024, rate="200mbit").fitting
            if plan.plan == "tree"
        )
        for wires in ("mesh4", wired_text("mesh4", "200mbit"))
    }
    plain, with_buckets = times.values()
    assert with_buckets < 0.7 * plain


@needs_links
def test_switches_in_a_loop_are_refused() -> None:
    shape = tersum.read_topology("pair")
    shape["switches"] = ["s", "t"]
    wire = {"bits_per_s": 1e9, "latency_us": 0.0, "burst_bytes": 0.0}
    shape["links"] = [
        {"between": pair, **wire}  # type: ignore[typeddict-item]
        for pair in ((0, 2), (1, 3), (2, 3), (3, 2))
    ]
    with pytest.raises(NamespaceError, match="part of a loop"):
        WiredTopology(shape)


@pytest.mark.parametrize("name", ["pair", "ring8", "mesh4", "star8", "torus2x4", "torus2x2x2"])
def test_a_named_topology_can_be_described(name: str) -> None:
    shape = read_topology(name, rate="200mbit", latency_us=7)
    again = read_topology(describe_topology(shape))
    assert again == shape
