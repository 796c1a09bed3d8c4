"""Tables of levels: the best for the data, the same on every rank, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tersum
from tersum.cli import main
from tersum.codecs import codec_info, decode_payload, encode_payload

Run = Callable[..., list[Any]]
Floats = npt.NDArray[np.float32]
COUNT = 1 << 17
BLOCK = 64
SEED = 5150


def data_of(kind: str) -> Floats:
    """Five kinds of values."""
    source = np.random.default_rng(SEED)
    x = source.standard_normal(COUNT)
    if kind == "grad":
        x *= source.lognormal(0, 1.5, COUNT)
    if kind == "segmented":
        x *= np.repeat(source.lognormal(0, 1.5, COUNT // 256), 256)
    if kind == "act":
        x.reshape(-1, 4096)[:, [5, 700, 2048, 4000]] *= 100
    if kind == "spikes":
        x[source.random(COUNT) < 0.001] *= 100
    return x.astype(np.float32)


def coded(spec: str, x: Floats) -> Floats:
    """After one coding."""
    return decode_payload(encode_payload(x, spec), spec, x.size)


def error(spec: str, x: Floats, weights: npt.ArrayLike = 1.0) -> float:
    """Relative, of one coding, each squared error multiplied by its weight."""
    lost = (coded(spec, x).astype(np.float64) - x) ** 2
    return float(np.sqrt(np.sum(lost * weights) / np.sum(x.astype(np.float64) ** 2 * weights)))


@pytest.mark.parametrize("kind", ["normal", "grad", "segmented", "act", "spikes"])
def test_learned_levels_beat_those_of_nf4_which_beat_int4(kind: str) -> None:
    """Section 3, SqueezeLLM: k-means-16 <= NF4 <= int4 at block 64 on five synthetic data sets. The
    levels are learned from one half and used on the other."""
    x = data_of(kind)
    spec = f"{tersum.register_table(tersum.learn_table(x[::2], 16, block=BLOCK))}/{BLOCK}"
    assert codec_info(spec).wire_bits == codec_info("int4/64").wire_bits
    rest = np.ascontiguousarray(x[1::2])
    found, nf4, int4 = (error(each, rest) for each in (spec, "nf4/64", "int4/64"))
    assert found <= nf4 <= int4


def test_weights_cut_the_weighted_error() -> None:
    """Section 3, SqueezeLLM: sensitivity weights cut the weighted error (0.70x there); the reading
    here: what matters is small values, as where a gradient's second moment is small."""
    x = data_of("grad")
    weights = 1 / (np.abs(x) + 0.01) ** 2
    plain, weighted = (
        tersum.register_table(tersum.learn_table(x, 16, block=BLOCK, weights=given))
        for given in (None, weights)
    )
    assert error(weighted, x, weights) <= 0.75 * error(plain, x, weights)
    assert error(weighted, x) > error(plain, x)


@pytest.mark.parametrize("levels", [2, 4])
def test_levels_are_the_best_there_are(levels: int) -> None:
    """Against every split of few values into runs."""
    values = np.sort(np.random.default_rng(SEED).uniform(-1, 1, 40)).astype(np.float32)
    values[0], values[-1] = -1, 1  # the scale is 1
    found = tersum.learn_table(values, levels, block=64)
    lost = np.abs(values[:, None] - found[None]).min(1)

    def cost(run: Floats) -> float:
        return float(np.sum((run - run.mean()) ** 2)) if run.size else 0.0

    ends = range(values.size + 1)
    best = [cost(values[:end]) for end in ends]
    for _ in range(levels - 1):
        best = [min(best[cut] + cost(values[cut:end]) for cut in range(end + 1)) for end in ends]
    # Values in one of the 1,024 bins of 2/1024 are not told apart.
    assert np.sum(lost**2) <= best[-1] * 1.01 + 1e-6
    assert all(a < b for a, b in pairwise(found))


@pytest.mark.parametrize("x", [np.array([3.0]), np.array([0.0, 1.0]), np.array([-7.0, -7.0])])
def test_few_values_are_levels_themselves(x: Floats) -> None:
    x = x.astype(np.float32)
    spec = tersum.register_table(tersum.learn_table(x, 8))
    np.testing.assert_allclose(coded(spec, x), x, rtol=2e-3)


def test_exact_zeros_stay_zero() -> None:
    x = np.maximum(data_of("normal"), 0)
    spec = tersum.register_table(tersum.learn_table(x))
    assert np.all(coded(spec, x)[x == 0] == 0)


def test_what_is_not_finite_teaches_nothing() -> None:
    x = data_of("normal")
    spoiled = np.concatenate([np.full(64, np.nan, np.float32), x, [np.inf]]).astype(np.float32)
    np.testing.assert_array_equal(tersum.learn_table(spoiled), tersum.learn_table(x))


def test_values_of_all_floating_types_teach() -> None:
    x = data_of("normal")[:4096].astype(np.float16)
    bits = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    torch = pytest.importorskip("torch", reason="bfloat16 arrays come from torch")
    bfloat16 = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    half = tersum.learn_table(x)
    assert half.dtype == np.float32 and half.shape == (16,)
    np.testing.assert_allclose(tersum.learn_table(bfloat16), half, atol=0.02)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x": [1.0], "levels": 5}, "levels must be 2, 4, 8 or 16, got 5"),
        ({"x": [1.0], "block": 48}, "block must be one of"),
        ({"x": [1, 2]}, "floating types, not int64"),
        ({"x": [0.0, 0.0]}, "nothing to learn"),
        ({"x": []}, "nothing to learn"),
        ({"x": [float("nan")]}, "nothing to learn"),
        ({"x": [1.0, 2.0], "weights": [1.0]}, "2 finite numbers"),
        ({"x": [1.0, 2.0], "weights": [1.0, -1.0]}, "2 finite numbers"),
        ({"x": [1.0, 2.0], "weights": [0.0, 0.0]}, "nothing to learn"),
    ],
)
def test_what_cannot_teach_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(tersum.InvalidArgumentError, match=reason):
        tersum.learn_table(np.array(arguments.pop("x")), **arguments)


@pytest.mark.parametrize(
    ("levels", "reason"),
    [([0, 0.5, 1], "not 3"), ([0.5, 0.5], "ascend"), ([0, 2], "level 1"), ([np.nan, 1], "level 0")],
)
def test_levels_that_are_none_are_refused(levels: list[float], reason: str) -> None:
    with pytest.raises(tersum.InvalidArgumentError, match=reason):
        tersum.register_table(levels)


def test_a_file_is_the_levels_in_it(tmp_path: Path) -> None:
    levels = tersum.learn_table(data_of("grad"))
    path = tmp_path / "grad.txt"
    np.savetxt(path, levels)
    spec = codec_info(f"table:{path}/128+sparse:1%").spec
    assert spec == tersum.register_table(levels) + "/128+sparse:1%"


def test_a_group_learns_one_table(run_group: Run) -> None:
    """From ranks whose arrays differ in kind and length; one has nothing at all."""
    kinds = {0: data_of("normal")[:3001], 1: data_of("grad"), 2: np.zeros(0, np.float32)}

    def body(group: tersum.Communicator) -> tuple[str, bytes]:
        spec = group.learn_codec("kmeans:16/64", kinds[group.rank])
        x = data_of("grad") * np.float32(group.rank + 1)
        return spec, group.all_reduce(x, codec=spec).tobytes()

    results = run_group(3, body)
    assert len(set(results)) == 1
    spec, summed = results[0]
    assert spec == codec_info(spec).spec and spec.endswith("/64")
    exact = 6.0 * data_of("grad").astype(np.float64)
    off = np.linalg.norm(np.frombuffer(summed, np.float32) - exact) / np.linalg.norm(exact)
    assert off <= 1.5 * error("nf4/64", data_of("grad"))


def test_a_group_without_anything_to_learn_from_says_so(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> str:
        with pytest.raises(tersum.InvalidArgumentError, match="nothing to learn") as caught:
            group.learn_codec("kmeans:4", np.zeros(100, np.float32))
        assert group.all_reduce(np.ones(1, np.float32), codec="exact")[0] == 2
        return str(caught.value)

    assert len(run_group(2, body)) == 2


@pytest.mark.parametrize("spec", ["kmeans", "kmeans:5", "kmeans:2/8", "kmeans:16+hadamard", "nf4"])
def test_what_is_not_learned_is_refused(spec: str) -> None:
    with (
        tersum.Communicator(0, 1) as group,
        pytest.raises(tersum.InvalidArgumentError, match="kmeans:K/B"),
    ):
        group.learn_codec(spec, np.ones(4, np.float32))


def test_ranks_with_other_tables_disagree(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> str:
        spec = tersum.register_table([-1, 0.25 * (group.rank + 1)])
        with pytest.raises(tersum.DisagreementError, match="table:") as caught:
            group.all_reduce(np.ones(8, np.float32), codec=spec)
        return str(caught.value)

    assert all("codec" in message for message in run_group(2, body))


def test_levels_are_learned_from_captured_calls(
    run_group: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tersum.capture(tmp_path / "calls"):
        run_group(2, lambda group: group.all_reduce(data_of("grad"), codec="int8"))
    out = tmp_path / "levels.txt"
    command = ["learn-table", "--capture", str(tmp_path / "calls"), "--out", str(out)]
    assert main([*command, "--levels", "8", "--block", "32"]) == 0
    assert f"table:{out}/32" in capsys.readouterr().out
    levels = np.loadtxt(out)
    assert levels.shape == (8,)
    spec = codec_info(f"table:{out}/32").spec
    assert error(spec, data_of("grad")) < error("int3/32", data_of("grad"))
    assert main([*command, "--site", "no such site"]) == 1
    assert "no such site" in capsys.readouterr().err
