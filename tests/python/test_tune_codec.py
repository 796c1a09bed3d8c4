"""tersum tune-codec: its errors against independent sums, its ranking, and its refusals."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum
from tersum import _codec_quality
from tersum._captured_calls import CapturedSite, read_capture
from tersum._codec_quality import default_specs
from tersum._rank_groups import RankGroups
from tersum.cli import main

SEED = 20261122
RANKS, COUNT, CHANNELS = 4, 64 * 256, 256
OUTLIERS = (3, 200)


def make_inputs(kind: str, seed: int = 0) -> np.ndarray:
    data = np.random.default_rng([SEED, seed]).standard_normal((RANKS, COUNT))
    if kind == "act":
        data[:, np.isin(np.arange(COUNT) % CHANNELS, OUTLIERS)] *= 100
    return data.astype(np.float32)


def write_capture(directory: Path, calls: list[np.ndarray], **changes: Any) -> None:
    """As a program of as many processes as there are ranks would; ``changes`` to its entries."""
    for rank in range(RANKS):
        folder = directory / f"host-{rank}"
        folder.mkdir(parents=True)
        entries = []
        for number, inputs in enumerate(calls):
            np.save(folder / f"{number}.npy", inputs[rank].reshape(-1, CHANNELS))
            entry = {
                "site": "step/sum", "id": "1.0", "call": str(number), "collective": "all_reduce",
                "op": "sum", "dtype": "float32", "count": COUNT, "channels": CHANNELS,
                "occurrence": 0, "codec": "exact", "plan": "auto", "group": list(range(RANKS)),
                "rank": rank, "source": "", "input": f"{number}.npy", "sum": "",
            }  # fmt: skip
            entries.append(entry | changes)
        index = {"format": "tersum-capture 1", "calls": entries}
        (folder / "index.json").write_text(json.dumps(index))


def error_of(total: np.ndarray, inputs: np.ndarray) -> _codec_quality.CallError:
    truth = _codec_quality.Truth.of(inputs)
    assert truth is not None
    return truth.error_of(total)


def tune(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["tune-codec", *arguments])
    streams = capsys.readouterr()
    return status, streams.out, streams.err


def specs_of(text: str) -> dict[str, dict[str, Any]]:
    return {row["spec"]: row for row in json.loads(text)["specs"]}


@pytest.mark.parametrize("kind", ["normal", "act"])
@pytest.mark.parametrize(
    "spec",
    [
        *("int8/128", "int4/32+hadamard", "mxfp8:e4m3", "nvfp4", "five", "int1", "nf4/64"),
        *("mxfp6:e2m3+floor", "mxint8+hadamard", "int8/32+shiftadd", "mxint8+shiftadd"),
    ],
)
def test_the_simulated_sum_is_the_real_one(kind: str, spec: str) -> None:
    """A real AllReduce over four ranks, bit for bit."""
    inputs = make_inputs(kind)
    results: dict[int, np.ndarray] = {}
    store = tersum.MemoryStore()

    def body(rank: int) -> None:
        with tersum.Communicator(rank, RANKS, store) as group:
            results[rank] = group.all_reduce(inputs[rank], codec=spec, plan="two_step")

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    site = CapturedSite("step/sum", "all_reduce", "float32", COUNT, CHANNELS, RANKS)
    with closing(RankGroups()) as groups:
        simulated = _codec_quality.simulator(spec, site, groups).next(inputs)
    assert simulated.total.tobytes() == results[0].tobytes()


def test_errors_against_the_formulas() -> None:
    # Two-step, four ranks: sqrt(1 + 3/4) of one coding's error; int8/128 has 2.85 sigma blocks.
    inputs = make_inputs("normal")
    total = _codec_quality.StatelessSum("int8/128").next(inputs).total
    measured = error_of(total, inputs)
    assert measured.error == pytest.approx(np.sqrt(1.75) * 2.85 / (127 * np.sqrt(12)), rel=0.03)
    # Nothing sticks out of normal values.
    assert measured.body == measured.error and measured.outliers == 0


def test_the_body_leaves_exactly_the_outliers_out() -> None:
    inputs = np.ones((2, 100), np.float32)
    inputs[:, 7] = 50
    total = inputs.sum(0)
    total[7] += 40  # an error on the outlier only
    measured = error_of(total, inputs)
    assert measured.body == 0 and measured.outliers == pytest.approx(0.01)
    assert measured.error == pytest.approx(40 / np.sqrt(99 * 4 + 100**2))
    total = inputs.sum(0)
    total[:7] += 0.5
    measured = error_of(total, inputs)
    assert measured.body == pytest.approx(np.sqrt(7 * 0.25) / np.sqrt(99 * 4))


@pytest.mark.parametrize("inputs", [np.zeros((2, 64)), np.full((2, 64), np.nan)])
def test_calls_without_a_measure_are_left_out(inputs: np.ndarray) -> None:
    assert _codec_quality.Truth.of(inputs.astype(np.float32)) is None


def test_bits_are_those_of_the_payloads() -> None:
    for spec in ("int6/128", "fp8e4m3/32", "nvfp4"):
        outcome = _codec_quality.StatelessSum(spec).next(make_inputs("normal"))
        chunk = tersum.codec_wire_bytes(spec, COUNT // RANKS)
        # Three contributions and the sum of each of the four chunks.
        assert outcome.wire_bytes == 16 * chunk
        assert outcome.values == RANKS * COUNT


def test_ranking_and_recommendation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_capture(tmp_path, [make_inputs("act", seed) for seed in range(2)])
    chosen = (
        "--capture",
        str(tmp_path),
        "--codec",
        "int8/128,int8+hadamard,int6/128+hadamard,int4",
    )
    status, out, _ = tune(capsys, *chosen, "--json")
    assert status == 0
    rows = specs_of(out)
    assert [*rows] == ["int4/128", "int6/128+hadamard", "int8/128+hadamard", "int8/128"]
    assert json.loads(out)["recommended"] == "int8/128+hadamard"
    assert rows["int8/128"]["bits"] == 8.125
    assert not rows["int8/128"]["on_front"] and rows["int8/128+hadamard"]["on_front"]
    # Outliers in one block of two: a quarter of the error is gone with them, if not more.
    assert rows["int4/128"]["body"] > 2 * rows["int4/128"]["error"]
    assert all(row["encode"] > 0 and row["decode_add"] > 0 for row in rows.values())
    for goal, spec in (
        (("--model-bits", "6.5"), "int6/128+hadamard"),
        (("--max-rel-error", "0.05"), "int6/128+hadamard"),
        (("--max-rel-error", "0.01"), "int8/128+hadamard"),
    ):
        status, out, _ = tune(capsys, *chosen, *goal)
        assert status == 0
        assert out.splitlines()[-1].endswith(f": {spec}")
        assert f"> {spec}" in out


def test_every_default_spec_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_capture(tmp_path, [make_inputs("normal")])
    status, out, _ = tune(capsys, "--capture", str(tmp_path), "--json", "--ranks", "2")
    assert status == 0
    names = {spec.split("/")[0].split("+")[0] for spec in specs_of(out)}
    assert names == {name for name in tersum.known_codecs() if name != "exact"}
    assert {"int6/128+sparse:0.5%", "int4/128+mixed", "int4/64+adaptive"} < {*default_specs({2})}
    assert "int8/32+shiftadd" in default_specs({2, 3})
    assert "lut2/32" in default_specs({2, 4}) and "lut2/32" not in default_specs({2, 3})


def test_calls_of_a_site_reach_a_spec_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Site(CapturedSite):
        def inputs(self, ranks: int) -> Any:
            return iter([np.full((2, 64), number, np.float32) for number in (1, 2, 3)])

    seen: dict[int, list[float]] = {}

    class Remembering(_codec_quality.StatelessSum):
        def next(self, inputs: Any) -> _codec_quality.Outcome:
            seen.setdefault(id(self), []).append(float(inputs[0, 0]))
            return super().next(inputs)

    kept: list[Remembering] = []

    def make(spec: str, site: CapturedSite, _groups: Any) -> Remembering:
        kept.append(Remembering(spec))
        return kept[-1]

    monkeypatch.setattr(_codec_quality, "simulator", make)
    sites = [Site(name, "all_reduce", "float32", 64, 0, 2) for name in ("a", "b")]
    _codec_quality.measure(["int8/32", "int4/32"], sites, 0)
    # One simulator for each spec and site, and each saw the three calls.
    assert len(kept) == 4 and [*seen.values()] == [[1.0, 2.0, 3.0]] * 4


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--codec", "int9"), 1, "int9"),
        (("--codec", " , "), 2, "names no codec"),
        (("--codec", "int4", "--model-bits", "2"), 1, "takes 4.125; allow more"),
        (("--codec", "int4", "--max-rel-error", "1e-6"), 1, "codec='exact'"),
        (("--model-bits", "-1"), 2, "must be more than 0"),
        (("--max-rel-error", "nan"), 2, "must be more than 0"),
        (("--ranks", "1"), 2, "--ranks must be 2 or more"),
        (("--codec", "int4", "--ranks", "64"), 1, "name fewer ranks"),
        (("--min-values", "1000000"), 1, "lower --min-values"),
    ],
)
def test_bad_arguments(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    status: int,
    words: str,
) -> None:
    write_capture(tmp_path, [make_inputs("normal")])
    found, _, err = tune(capsys, "--capture", str(tmp_path), *arguments)
    assert found == status
    assert err.startswith("tersum tune-codec: ") and words in err


def test_bad_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refusal(directory: Path) -> str:
        status, _, err = tune(capsys, "--capture", str(directory), "--codec", "int4")
        assert status == 1
        return err

    assert "there is no directory" in refusal(tmp_path / "none")
    assert "holds no capture" in refusal(tmp_path)
    empty = tmp_path / "empty"
    write_capture(empty, [])
    assert "is empty: no sum travelled" in refusal(empty)
    lonely = tmp_path / "lonely"
    write_capture(lonely, [make_inputs("normal")])
    (lonely / "host-2" / "index.json").unlink()
    assert "has all its ranks (of 4): copy the folders" in refusal(lonely)
    mixed = tmp_path / "mixed"
    write_capture(mixed, [make_inputs("normal")])
    other = mixed / "host-1" / "index.json"
    other.write_text(other.read_text().replace(str(COUNT), str(2 * COUNT)))
    assert "recorded different things" in refusal(mixed)
    for text, words in (
        ("{", "cannot read"),
        ("[]", "no index of the format"),
        ('{"format": "tersum-capture 1", "calls": [{}]}', "without all fields"),
        ('{"format": "tersum-capture 1", "calls": 3}', "without all fields"),
    ):
        other.write_text(text)
        assert words in refusal(mixed)
    short = tmp_path / "short"
    write_capture(short, [make_inputs("normal")])
    np.save(short / "host-1" / "0.npy", np.ones(3, np.float32))
    assert "has 3 values of float32 where the index says" in refusal(short)
    (short / "host-1" / "0.npy").write_bytes(b"nothing")
    assert "cannot read" in refusal(short)


def test_speeds_are_multiples_of_memcpy() -> None:
    speed = tersum.codec_speed("int8", np.ones((4, 1000)), rounds=3)
    assert speed.encode > 0 and speed.decode_add > 0
    with pytest.raises(tersum.InvalidArgumentError, match="int9"):
        tersum.codec_speed("int9", np.ones(4))
    with pytest.raises(tersum.InvalidArgumentError, match="one value or more"):
        tersum.codec_speed("int8", np.ones(0))


def test_sites_of_one_name_stay_apart(tmp_path: Path) -> None:
    for number in range(2):
        write_capture(tmp_path, [make_inputs("normal", number)], id=str(number))
        for folder in tmp_path.glob("host-?"):
            folder.rename(tmp_path / f"{number}-{folder.name}")
    sites = read_capture(tmp_path)
    assert [site.name for site in sites] == ["step/sum", "step/sum [2]"]
    for number, site in enumerate(sites):
        (inputs,) = site.inputs(RANKS)
        assert inputs.tobytes() == make_inputs("normal", number).tobytes()


def test_a_spec_that_learns_gets_better_from_call_to_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_capture(tmp_path, [make_inputs("act", seed) for seed in range(4)])
    specs = "int6/128,int6/128+hadamard,int6/128+flatten"
    status, out, _ = tune(capsys, "--capture", str(tmp_path), "--codec", specs, "--json")
    assert status == 0
    rows = specs_of(out)
    learned, turned = rows["int6/128+flatten"], rows["int6/128+hadamard"]
    assert learned["bits"] == turned["bits"] == 6.125
    # Its first call is that of the transform alone.
    assert learned["worst"] == pytest.approx(turned["worst"], rel=0.05)
    assert learned["error"] < 0.95 * turned["error"]
    assert json.loads(out)["recommended"] == "int6/128+flatten"
