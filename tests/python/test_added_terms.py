"""all_reduce(residual=, bias=): what a rank contributes is the sum, formed on its way.

Reference line: section 3, ZeroQuant: quantization fused into the preceding operator, and a fused
hop gives identical bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tersum

Run = Callable[..., list[Any]]
Data = np.ndarray[Any, Any]
SEED = 20261122
SHAPE = (37, 640)
PLANS = ["two_step", "ring", "bidirectional_ring", "one_shot", "halving_doubling", "tree", "auto"]
CODECS = [
    "exact",
    "bf16",
    "int8/128",
    "int4/32+hadamard",
    "int6/64+sparse:1%",
    "int8+rows:640",
    "int5/64+mixed",
    "int4/64+adaptive",
    "int6/128+flatten",
    "int4/32+clip:learned",
    "sum8/64",
    "sum8/64+hadamard",
    "sum8/64+rows:100",
]


def terms_of(rank: int, dtype: str = "float32") -> tuple[Data, Data, Data]:
    """x, residual and bias of a rank."""
    random = np.random.default_rng([SEED, rank])
    shapes = (SHAPE, SHAPE, SHAPE[-1:])
    x, residual, bias = (random.standard_normal(shape) for shape in shapes)
    return x.astype(dtype), residual.astype(dtype), bias.astype(dtype)


@pytest.mark.parametrize("plan", PLANS)
def test_contributions_are_the_sums(run_group: Run, plan: str) -> None:
    """Bit for bit those of a call with x + residual + bias, with every codec; x stays."""

    def body(group: tersum.Communicator) -> None:
        x, residual, bias = terms_of(group.rank)
        before = x.copy()
        codecs = CODECS + ([] if "ring" in plan else ["lut2", "lut2+rows:50"])
        for number, codec in enumerate(codecs):
            how: dict[str, Any] = {"codec": codec, "plan": plan}
            formed = group.all_reduce((x + residual) + bias, site=f"{number} formed", **how)
            got = group.all_reduce(x, residual=residual, bias=bias, site=f"{number}", **how)
            assert got.tobytes() == formed.tobytes(), codec
            if (
                "+flatten" in codec or "+clip" in codec
            ):  # two calls of one site are no two equal calls
                continue
            alone = group.all_reduce(x, residual=residual, **how)
            assert alone.tobytes() == group.all_reduce(x + residual, **how).tobytes(), codec
        assert x.tobytes() == before.tobytes()

    run_group(4, body, slice_bytes=4096)


def test_each_rank_adds_what_it_has(run_group: Run) -> None:
    """Only rank 1 has a residual, only rank 2 a bias: the usual way to add them once."""
    data = [terms_of(rank) for rank in range(3)]

    def body(group: tersum.Communicator) -> Data:
        x, residual, bias = data[group.rank]
        return group.all_reduce(
            x,
            codec="exact",
            plan="two_step",
            residual=residual if group.rank == 1 else None,
            bias=bias if group.rank == 2 else None,
        )

    results = run_group(3, body)
    expected = data[0][0] + (data[1][0] + data[1][1]) + (data[2][0] + data[2][2])
    assert all(result.tobytes() == expected.tobytes() for result in results)


@pytest.mark.parametrize("size", [1, 3])
def test_in_place_and_in_the_background(run_group: Run, size: int) -> None:
    def body(group: tersum.Communicator) -> None:
        x, residual, bias = terms_of(group.rank)
        expected = group.all_reduce((x + residual) + bias, codec="int8/64")
        over_x = x.copy()
        group.all_reduce(over_x, codec="int8/64", out=over_x, residual=residual, bias=bias)
        assert over_x.tobytes() == expected.tobytes()
        over_residual = residual.copy()
        work = group.all_reduce_async(
            x, codec="int8/64", out=over_residual, residual=over_residual, bias=bias
        )
        assert work.result() is over_residual
        assert over_residual.tobytes() == expected.tobytes()
        # Memory that the result would overwrite is copied first.
        memory = np.concatenate([residual.reshape(-1), np.zeros(7, np.float32)])
        group.all_reduce(
            x,
            codec="int8/64",
            out=memory[7:].reshape(SHAPE),
            residual=memory[:-7].reshape(SHAPE),
            bias=bias,
        )
        assert memory[7:].tobytes() == expected.tobytes()
        strided = np.repeat(residual, 2, axis=1)[:, ::2]
        got = group.all_reduce(x, codec="int8/64", residual=strided, bias=bias)
        assert got.tobytes() == expected.tobytes()

    run_group(size, body)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8"])
def test_types_that_travel_as_they_are(run_group: Run, dtype: str) -> None:
    """The sum in float32, rounded once, for float16; in the type for the others."""

    def body(group: tersum.Communicator) -> None:
        terms = terms_of(group.rank, "float64")
        x, residual, bias = ((30 * term).clip(-60, 60).astype(dtype) for term in terms)
        wide = "float32" if dtype == "float16" else dtype
        formed = (x.astype(wide) + residual.astype(wide) + bias.astype(wide)).astype(dtype)
        got = group.all_reduce(x, codec="exact", residual=residual, bias=bias)
        assert got.tobytes() == group.all_reduce(formed, codec="exact").tobytes()

    run_group(2, body)


def test_a_number_that_is_none_arrives_as_nan(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> Data:
        x, residual, bias = terms_of(group.rank)
        if group.rank == 1:
            residual[3, 100] = np.inf
        return group.all_reduce(x, codec="int8/128", residual=residual, bias=bias)

    for result in run_group(2, body):
        lost = np.isnan(result).reshape(-1, 128)
        assert lost.any(1).sum() == 1
        assert lost.all(1).sum() == 1


def test_what_does_not_fit_is_refused(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x, residual, bias = terms_of(0)
        for wrong, text in (
            ({"residual": residual[:-1]}, "residual has shape"),
            ({"residual": residual.astype(np.float64)}, "residual has dtype float64"),
            ({"bias": bias.astype(np.float16)}, "bias has dtype float16"),
            ({"bias": bias[:-1]}, "bias has 639 elements, which does not divide"),
            ({"bias": bias[:0]}, "bias has 0 elements"),
            ({"residual": "text"}, "residual must be a NumPy array"),
        ):
            with pytest.raises(tersum.InvalidArgumentError, match=text):
                group.all_reduce(x, **wrong)  # type: ignore[arg-type]
        empty = np.empty(0, np.float32)
        assert group.all_reduce(empty, residual=empty, bias=bias).size == 0

    run_group(1, body)


def test_feedback_is_refused(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x, residual, _ = terms_of(group.rank)
        with pytest.raises(tersum.UnsupportedError, match="takes no residual or bias"):
            group.all_reduce(x, codec="int4+feedback", site="here", residual=residual)

    run_group(2, body)


def test_a_group_of_one_gets_the_sum(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> Data:
        x, residual, bias = terms_of(0)
        return group.all_reduce(x, codec="exact", residual=residual, bias=bias)

    x, residual, bias = terms_of(0)
    assert run_group(1, body)[0].tobytes() == ((x + residual) + bias).tobytes()


def test_capture_leaves_such_calls_out(run_group: Run, tmp_path: Any) -> None:
    def captured(folder: str, **added: Data) -> int:
        with tersum.capture(tmp_path / folder):
            run_group(1, lambda group: group.all_reduce(terms_of(0)[0], **added))
        return sum(path.stat().st_size for path in (tmp_path / folder).rglob("*"))

    values_bytes = 4 * SHAPE[0] * SHAPE[1]
    assert captured("plain") > values_bytes
    assert captured("added", residual=terms_of(0)[1]) < values_bytes
