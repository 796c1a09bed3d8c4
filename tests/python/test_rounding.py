"""+sr: random rounding whose bits follow from a seed, and what it does to sums of several ranks.

Lines of the codec reference that a test holds are named in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum
from tersum.codecs import decode_payload, encode_payload

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

import encode_slice
from simulate_codecs import make_data, relative_error, two_step

Run = Callable[..., list[Any]]
Data = np.ndarray[Any, Any]
RANKS = 8
SEED = 4242


def sums(run_group: Run, data: Data, spec: str, calls: int, **options: Any) -> list[Data]:
    """What the calls gave, the same on all ranks."""

    def body(group: tersum.Communicator) -> list[Data]:
        mine = data[group.rank]
        return [group.all_reduce(mine, codec=spec, plan="two_step") for _ in range(calls)]

    results = run_group(len(data), body, **options)
    for other in results[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(results[0], other, strict=True))
    first: list[Data] = results[0]
    return first


@pytest.mark.parametrize("spec", ["int4/32+sr", "nf4/64+hadamard+sr", "mxfp6+sparse:2%+sr"])
@pytest.mark.parametrize("key", [1, 0x123456789ABCDEF0, (1 << 64) - 1])
def test_a_payload_is_that_of_the_reference(spec: str, key: int) -> None:
    values = np.random.default_rng(SEED).standard_normal(301).astype(np.float32)
    assert encode_payload(values, spec, key) == encode_slice.encode(
        spec, "float32", [float(x) for x in values], key
    )


def test_the_seed_says_all_bits(run_group: Run) -> None:
    data = make_data("normal", 3, 5003, SEED)
    spec = "int4/32+sr"
    first = sums(run_group, data, spec, 3, rounding_seed=5)
    again = sums(run_group, data, spec, 3, rounding_seed=5)
    other = sums(run_group, data, spec, 3, rounding_seed=6)
    assert [x.tobytes() for x in first] == [x.tobytes() for x in again]
    # Each call and each seed rounds anew.
    assert len({x.tobytes() for x in first + other}) == 6


def test_seeds_need_not_agree(run_group: Run) -> None:
    data = make_data("normal", 3, 1000, SEED)
    store = tersum.MemoryStore()

    def body(outer: tersum.Communicator) -> Data:
        options = {"rounding_seed": outer.rank, "name": "inner"}
        with tersum.Communicator(outer.rank, 3, store, **options) as group:
            return group.all_reduce(data[group.rank], codec="int8+sr")

    results = run_group(3, body)
    assert all(result.tobytes() == results[0].tobytes() for result in results)


def test_a_split_group_rounds_with_numbers_of_its_own(run_group: Run) -> None:
    data = make_data("normal", 2, 1000, SEED)

    def body(group: tersum.Communicator) -> list[bytes]:
        part = group.split(0, group.rank)
        assert part is not None
        groups = (group, part)
        return [g.all_reduce(data[g.rank], codec="int4+sr").tobytes() for g in groups]

    whole, part = run_group(2, body)[0]
    assert whole != part


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_is_64_bits(seed: int) -> None:
    with pytest.raises(tersum.InvalidArgumentError, match="rounding_seed"):
        tersum.Communicator(0, 1, rounding_seed=seed)


def test_one_sum_costs_the_root_of_two(run_group: Run) -> None:
    """Section 1: stochastic rounding multiplies the error by sqrt 2."""
    data = make_data("normal", RANKS, 1 << 16, SEED)
    for spec in ("int8/256", "int4/256"):
        nearest = relative_error(two_step(spec, data), data)
        rounded = relative_error(sums(run_group, data, spec + "+sr", 1)[0], data)
        assert rounded == pytest.approx(nearest * 2**0.5, rel=0.03), f"{spec}, seed {SEED}"


def test_the_mean_of_many_sums_is_the_sum(run_group: Run) -> None:
    """Section 1, on ranks that are nearly equal: the mean of the sums converges, and nearest
    rounding keeps a bias of 0.114; section 3, Global-QSGD: chi2/dof is about 1."""
    calls, count = 300, 4096
    random = np.random.default_rng(SEED)
    data = random.standard_normal(count) + 0.02 * random.standard_normal((RANKS, count))
    data = data.astype(np.float32)
    exact = data.sum(0, dtype=np.float64)
    got = np.array(sums(run_group, data, "int4/256+sr", calls), np.float64)
    off = got.mean(0) - exact
    # The variance of a mean of `calls` samples, by the samples themselves.
    chi = off**2 / (got.var(0, ddof=1) / calls)
    assert 0.95 < chi.mean() < 1.05, f"{chi.mean()} with {count} degrees, seed {SEED}"
    error = np.linalg.norm(got[0] - exact) / np.linalg.norm(exact)
    bias = np.linalg.norm(off) / np.linalg.norm(exact)
    assert bias == pytest.approx(error / calls**0.5, rel=0.05)
    nearest = sums(run_group, data, "int4/256", 1)[0]
    assert np.linalg.norm(nearest - exact) / np.linalg.norm(exact) > 0.10


def test_equal_tensors_are_rounded_apart(run_group: Run) -> None:
    """The errors of ranks with equal data and equal seeds are independent: they add up as roots."""
    data = make_data("identical", RANKS, 1 << 16, SEED)
    spec = "int4/256+sr"
    once = relative_error(
        decode_payload(encode_payload(data[0], spec), spec, data.shape[1]), data[:1]
    )
    parts = run_group(
        RANKS,
        lambda group: group.reduce_scatter(data[group.rank], codec=spec, plan="two_step"),
    )
    got = relative_error(np.concatenate(parts), data)
    # Seven of eight contributions are coded; the same errors seven times would make 7/8 of one.
    assert got == pytest.approx(once * 7**0.5 / 8, rel=0.03), f"seed {SEED}"


def takes_sr(spec: str) -> bool:
    try:
        tersum.codec_info(f"{spec}+sr")
    except tersum.InvalidArgumentError:
        return False
    return True


def test_whatever_takes_sr_is_without_bias(run_group: Run) -> None:
    """Section 3, Global-QSGD: chi2/dof is about 1, here with the offs and the variances of all
    values added up first: few values of 8 bits vary in so few calls. Two ranks whose values have
    nothing to do with each other; a rule that takes the side of either comes to hundreds."""
    calls, count = 200, 4096
    data = np.random.default_rng(SEED).standard_normal((2, count)).astype(np.float32)
    exact = data.sum(0, dtype=np.float64)
    specs = [spec for spec in tersum.known_codecs() if takes_sr(spec)]
    assert len(specs) >= 18 and not {"int1", "nvfp4", "sum:exp", "lut2"} & {*specs}
    for spec in specs:
        got = np.array(sums(run_group, data, f"{spec}+sr", calls), np.float64)
        off = got.mean(0) - exact
        chi = (off**2).sum() / (got.var(0, ddof=1) / calls).sum()
        assert 0.85 < chi < 1.15, f"{spec}: {chi}, seed {SEED}"


def test_what_would_be_biased_all_the_same_is_refused() -> None:
    for spec in ("int1+sr", "nvfp4+sr", "mxfp8+floor+sr", "bf16+sr", "lut2+sr", "lut2+rows:8+sr"):
        with pytest.raises(tersum.InvalidArgumentError, match='modifier "sr" is refused'):
            tersum.codec_info(spec)
