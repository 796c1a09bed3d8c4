"""all_reduce_coalesced: lists of arrays in, lists of arrays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tersum

Run = Callable[..., list[Any]]


def _tensors(rank: int, dtype: str = "float32") -> list[np.ndarray[Any, Any]]:
    shapes: list[tuple[int, ...]] = [(3, 5), (), (0, 4), (1000,), (300, 1000), (2, 2, 2)]
    return [np.full(shape, rank + i, dtype) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_shapes_come_back_as_they_went(run_group: Run, size: int) -> None:
    results = run_group(
        size, lambda group: group.all_reduce_coalesced(_tensors(group.rank), codec="exact")
    )
    ranks = sum(range(size))
    for result in results:
        for i, (got, sent) in enumerate(zip(result, _tensors(0), strict=True)):
            assert got.shape == sent.shape and got.dtype == sent.dtype
            assert (got == size * i + ranks).all()


def test_types_may_be_mixed(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> list[Any]:
        mixed = _tensors(1, "int64") + _tensors(2) + _tensors(3, "uint8")
        mixed[1], mixed[7] = mixed[7], mixed[1]
        return group.all_reduce_coalesced(mixed, op="max")

    one, two = run_group(2, body)
    assert [x.dtype.name for x in one[:3]] == ["int64", "float32", "int64"]
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(one, two, strict=True))
    assert one[3][0] == 4 and one[9][0] == 5 and one[15][0] == 6


def test_in_place_and_async(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        first, second = _tensors(group.rank), _tensors(10 * group.rank)
        strided = np.zeros((1000, 2), np.float32)[:, 0]
        second[3] = strided + group.rank
        outs = [*second[:3], strided, *second[4:]]
        works = [
            group.all_reduce_coalesced_async(first, codec="exact", out=first),
            group.all_reduce_coalesced_async(second, codec="exact", out=outs),
        ]
        results = [work.result() for work in works]
        assert all(work.done() for work in works)
        assert results[0][4] is first[4] and (first[4] == 9).all()
        assert results[1][3] is strided and (strided == 1).all()

    run_group(2, body)


def test_torch_tensors_come_back_as_such(run_group: Run) -> None:
    torch = pytest.importorskip("torch")

    def body(group: tersum.Communicator) -> None:
        mixed = [torch.ones(100, dtype=torch.bfloat16), np.ones(3, np.float32)]
        one, two = group.all_reduce_coalesced(mixed)
        assert isinstance(one, torch.Tensor) and one.dtype == torch.bfloat16
        assert bool((one == 2).all()) and isinstance(two, np.ndarray)

    run_group(2, body)


def test_no_tensors(run_group: Run) -> None:
    assert run_group(2, lambda group: group.all_reduce_coalesced([])) == [[], []]


def test_bad_input_starts_nothing(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = np.ones(4, np.float32)
        with pytest.raises(tersum.InvalidArgumentError, match=r"tensors\[1\] must be"):
            group.all_reduce_coalesced([x, [1.0]])
        with pytest.raises(tersum.UnsupportedError, match=r"tensors\[0\] has dtype complex64"):
            group.all_reduce_coalesced([np.ones(3, np.complex64)])
        with pytest.raises(tersum.InvalidArgumentError, match="out has 1 arrays for 2 tensors"):
            group.all_reduce_coalesced([x, x.copy()], out=[x])
        with pytest.raises(tersum.InvalidArgumentError, match="int9"):
            group.all_reduce_coalesced([x], codec="int9")
        group.barrier()

    run_group(2, body)


def test_lists_that_differ_are_named(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> float:
        tensors = [np.ones(10 + group.rank, np.float32), np.ones(7, np.float32)]
        with pytest.raises(tersum.DisagreementError, match="2 tensors whose lengths"):
            group.all_reduce_coalesced(tensors)
        return float(group.all_reduce_coalesced([np.ones(5, np.float32)], "max")[0][4])

    assert run_group(2, body) == [1, 1]
