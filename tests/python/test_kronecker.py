"""The modifier +kronecker: matrices as numbers and as files, alone and in a group, beside products
in NumPy. What payloads hold, and which files are refused, is tested in C++."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tersum
from tersum.codecs import codec_info, decode_payload, encode_payload

Run = Callable[..., list[Any]]
Floats = npt.NDArray[np.float32]
SEED = 4242
SIDES = (8, 16)
CHANNELS = 96


def orthogonal(side: int, seed: int) -> npt.NDArray[np.float64]:
    drawn = np.random.default_rng(seed).standard_normal((side, side))
    return np.linalg.qr(drawn)[0]


P1, P2 = (orthogonal(side, SEED + side) for side in SIDES)
FACTORS = np.exp(np.random.default_rng(SEED).uniform(-2, 2, CHANNELS))


def values_of(rank: int, count: int = 12 * CHANNELS) -> Floats:
    """Channels of the sizes that FACTORS make equal."""
    drawn = np.random.default_rng(SEED + rank).standard_normal(count)
    return (drawn / FACTORS[np.arange(count) % CHANNELS]).astype(np.float32)


def coded(spec: str, x: Floats) -> Floats:
    """After one coding."""
    return decode_payload(encode_payload(x, spec), spec, x.size)


def error(got: npt.ArrayLike, exact: npt.ArrayLike) -> float:
    wrong = np.asarray(got, np.float64) - np.asarray(exact, np.float64)
    return float(np.linalg.norm(wrong) / np.linalg.norm(np.asarray(exact, np.float64)))


def test_sides_are_a_turn_by_their_kronecker_product() -> None:
    """Section 3, FlatQuant: the Kronecker identity. Two small products code what NumPy's one large
    product gives, byte by byte but for what lies between two codes, or two scales."""
    blocks = np.random.default_rng(SEED).standard_normal((64, SIDES[0] * SIDES[1]))
    large = (blocks @ np.kron(P1, P2)).astype(np.float32).reshape(-1)
    spec = f"int8/128+{tersum.register_kronecker(P1, P2)}"
    got = np.frombuffer(encode_payload(blocks.astype(np.float32).reshape(-1), spec), np.int8)
    expected = np.frombuffer(encode_payload(large, "int8/128"), np.int8)
    assert np.mean(got != expected) < 0.02


def test_turning_commutes_with_the_sum(run_group: Run) -> None:
    """Section 3, FlatQuant: commutation. The integers of turned values are added up and turned back
    once; what they stand for is the sum of what each rank's would be, turned back by themselves."""
    spec, plan, ranks = "int8/128+hadamard+shiftadd", "one_shot", 4
    parts = [values_of(rank, 1 << 14) for rank in range(ranks)]
    sums = run_group(ranks, lambda g: g.all_reduce(parts[g.rank], codec=spec, plan=plan))
    assert error(sums[0], sum(coded(spec, part).astype(np.float64) for part in parts)) <= 2e-7


def test_a_file_is_the_matrices_in_it(tmp_path: Path) -> None:
    path = tmp_path / "turn.txt"
    modifier = tersum.write_kronecker(path, P1, P2, FACTORS, comment="two lines\nabout it")
    assert modifier == tersum.register_kronecker(P1, P2, FACTORS)
    assert path.read_text().startswith("# two lines\n# about it\ntersum-kronecker 1\n8 16 96\n")
    spec = codec_info(f"int4+kronecker:{path}").spec
    assert spec == f"int4/128+{modifier}"
    assert codec_info(spec).wire_bits == codec_info("int4").wire_bits


def test_coding_is_that_of_the_product() -> None:
    """The plain codec on products from NumPy, turned back by inverses from NumPy."""
    x = values_of(0)
    blocks = (x * FACTORS[np.arange(x.size) % CHANNELS]).reshape(-1, *SIDES)
    turned = (P1.T @ blocks @ P2).reshape(-1).astype(np.float32)
    back = (P1 @ coded("int6/128", turned).reshape(-1, *SIDES) @ P2.T).reshape(-1)
    expected = back / FACTORS[np.arange(x.size) % CHANNELS]
    got = coded(f"int6/128+{tersum.register_kronecker(P1, P2, FACTORS)}", x)
    # Another choice between two equally near codes moves a block by one step; few are that near.
    assert np.mean(np.abs(got - expected) > 1e-4 * np.abs(x).max()) < 0.2
    assert error(got, expected) < 0.2 * error(expected, x)


@pytest.mark.parametrize("plan", ["two_step", "one_shot", "ring", "tree", "halving_doubling"])
@pytest.mark.parametrize("count", [12 * CHANNELS, 1001, 5])
def test_every_plan_sums_alike_on_every_rank(run_group: Run, plan: str, count: int) -> None:
    """Slices lie anywhere in the array, and each value takes its own channel's factor."""
    spec = f"int8/128+{tersum.register_kronecker(P1, P2, FACTORS)}"

    def body(group: tersum.Communicator) -> tuple[bytes, float]:
        x = values_of(group.rank, count)
        got = group.all_reduce(x, codec=spec, plan=plan)
        return got.tobytes(), float(np.abs(got - exact).max())

    exact = sum(values_of(rank, count).astype(np.float64) for rank in range(4))
    results = run_group(4, body, slice_bytes=4096)
    assert len({got for got, _ in results}) == 1
    assert results[0][1] <= 0.02 * np.abs(exact).max()
    assert error(np.frombuffer(results[0][0], np.float32), exact) <= 0.03


def test_factors_that_fit_the_channels_lower_the_error() -> None:
    x = values_of(1)
    plain, turned, fitted = (
        error(coded(spec, x), x)
        for spec in (
            "int4/128",
            f"int4/128+{tersum.register_kronecker(P1, P2)}",
            f"int4/128+{tersum.register_kronecker(P1, P2, np.sqrt(FACTORS))}",
        )
    )
    assert fitted < 0.8 * turned < 0.8 * plain


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "broadcast"])
def test_other_collectives_take_it(run_group: Run, collective: str) -> None:
    spec = f"int8/128+{tersum.register_kronecker(P1, P2, FACTORS)}"

    def body(group: tersum.Communicator) -> Floats:
        x = values_of(group.rank, 3 * 1000)
        call = getattr(group, collective)
        root = {"root": 1} if collective == "broadcast" else {}
        found: Floats = call(x, codec=spec, **root)
        return found

    inputs = [values_of(rank, 3000) for rank in range(3)]
    whole = {
        "reduce_scatter": np.sum(inputs, 0, np.float64),
        "all_gather": np.concatenate(inputs),
        "broadcast": inputs[1],
    }[collective]
    results = run_group(3, body)
    got = np.concatenate(results) if collective == "reduce_scatter" else results[0]
    # Gathered parts do not begin at channel 0: their factors are others than those that fit.
    assert error(got.reshape(-1), whole) <= 0.08


def test_lists_of_tensors_take_it(run_group: Run) -> None:
    spec = f"int8/128+{tersum.register_kronecker(P1, P2, FACTORS)}"

    def body(group: tersum.Communicator) -> list[Floats]:
        return group.all_reduce_coalesced(
            [values_of(group.rank, 500), values_of(group.rank, 77)], codec=spec
        )

    results = run_group(2, body)
    for place, count in enumerate((500, 77)):
        exact = values_of(0, count).astype(np.float64) + values_of(1, count)
        assert error(results[0][place], exact) <= 0.1
        np.testing.assert_array_equal(results[0][place], results[1][place])


def test_ranks_with_other_matrices_disagree(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> str:
        modifier = tersum.register_kronecker(P1, P2, FACTORS + group.rank)
        with pytest.raises(tersum.DisagreementError, match="kronecker:") as caught:
            group.all_reduce(np.ones(200, np.float32), codec=f"int8/128+{modifier}")
        return str(caught.value)

    assert all("rank" in message for message in run_group(2, body))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((np.ones(5), P2), "P1 has 5 numbers"),
        ((P1, np.ones((16, 16))), "P2 \\(16 x 16\\) is singular"),
        ((P1, P2, [1.0, 0.0]), "factor of channel 1 is zero"),
        ((np.eye(2), np.eye(4)), "blocks of 8 values"),
    ],
)
def test_what_cannot_be_turned_back_is_refused(
    arguments: tuple[Any, ...], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(tersum.InvalidArgumentError, match=reason):
        tersum.register_kronecker(*arguments)
    with pytest.raises(tersum.InvalidArgumentError, match=reason):
        tersum.write_kronecker(tmp_path / "none", *arguments)
    assert not (tmp_path / "none").exists()
