"""Every collective over every element type, against NumPy; the same bits on all ranks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tersum

DTYPES = ["float32", "float16", "float64", "int32", "int64", "uint8", "bfloat16"]
SIZES = [1, 2, 3, 4]


def numpy_type(dtype: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def values(rank: int, shape: tuple[int, ...], dtype: str) -> Any:
    generator = np.random.default_rng([7, rank])
    if dtype in ("int32", "int64", "uint8"):
        return generator.integers(0, 40, shape).astype(dtype)
    return generator.standard_normal(shape).astype(numpy_type(dtype))


def same_bits(results: list[Any]) -> bool:
    return all(result.tobytes() == results[0].tobytes() for result in results)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_exact_sum_of_small_integers_is_exact(run_group: Any, size: int, dtype: str) -> None:
    shape = (5, 31)
    inputs = [
        np.random.default_rng(rank).integers(0, 16, shape).astype(numpy_type(dtype))
        for rank in range(size)
    ]
    results = run_group(size, lambda g: g.all_reduce(inputs[g.rank], codec="exact"))
    expected = np.sum([x.astype(np.float64) for x in inputs], axis=0)
    assert same_bits(results)
    assert results[0].dtype == numpy_type(dtype) and results[0].shape == shape
    np.testing.assert_array_equal(results[0].astype(np.float64), expected)


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_max_and_min_take_the_exact_path(run_group: Any, op: str, dtype: str) -> None:
    results = run_group(3, lambda g: g.all_reduce(values(g.rank, (1009,), dtype), op=op))
    inputs = [values(rank, (1009,), dtype).astype(np.float64) for rank in range(3)]
    expected = (np.maximum if op == "max" else np.minimum).reduce(inputs)
    assert same_bits(results)
    np.testing.assert_array_equal(results[0].astype(np.float64), expected)


@pytest.mark.parametrize("plan", ["auto", "two_step", "ring", "one_shot"])
@pytest.mark.parametrize("codec", ["exact", "bf16", "int8/32", "int8", "int4/128"])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_float_sums_stay_within_the_stated_bound(
    run_group: Any, op: str, codec: str, plan: str
) -> None:
    size, count = 4, 4099

    def body(group: tersum.Communicator) -> tuple[Any, float]:
        result = group.all_reduce(values(group.rank, (count,), "float32"), op, codec, plan)
        inputs = np.stack([values(rank, (count,), "float32") for rank in range(size)])
        total = inputs.astype(np.float64).sum(axis=0)
        bound = group.error_bound(
            codec,
            plan=plan,
            count=count,
            absmax=float(np.abs(inputs).max()),
            sum_absmax=float(np.abs(total).max()),
        )
        return result, bound

    results = run_group(size, body)
    total = np.sum([values(r, (count,), "float32").astype(np.float64) for r in range(size)], axis=0)
    scale = size if op == "avg" else 1
    assert same_bits([result for result, _ in results])
    error = np.abs(results[0][0] - total / scale).max()
    # The average divides once more, which rounds once more.
    assert error <= results[0][1] / scale + np.abs(total).max() * 2.0**-23
    if codec == "int8/32":
        assert error > 0  # it really was quantized


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter(run_group: Any, size: int, dtype: str) -> None:
    inputs = [
        np.random.default_rng(rank).integers(0, 16, (size * 3, 7)).astype(numpy_type(dtype))
        for rank in range(size)
    ]
    results = run_group(size, lambda g: g.reduce_scatter(inputs[g.rank], codec="exact"))
    expected = np.sum([x.astype(np.float64) for x in inputs], axis=0)
    for rank, result in enumerate(results):
        assert result.shape == (3, 7)
        np.testing.assert_array_equal(result.astype(np.float64), expected[rank * 3 : rank * 3 + 3])


def test_reduce_scatter_has_its_own_tighter_bound(run_group: Any) -> None:
    size, part, codec = 4, 1000, "int4/32"
    inputs = [np.random.default_rng(70 + r).normal(size=size * part) for r in range(size)]
    singles = [x.astype(np.float32) for x in inputs]
    exact = np.sum([x.astype(np.float64) for x in singles], axis=0).reshape(size, part)
    absmax = max(float(np.abs(x).max()) for x in singles)

    def body(group: tersum.Communicator) -> Any:
        def bound(collective: str, plan: str) -> float:
            return group.error_bound(
                codec, count=part, absmax=absmax, plan=plan, collective=collective
            )

        for plan in ("two_step", "ring"):
            own = bound("reduce_scatter", plan)
            out = group.reduce_scatter(singles[group.rank], codec=codec, plan=plan)
            # all_reduce quantizes the sum itself, up to size * absmax, once more.
            final = tersum.codec_error_bound(codec, size * absmax)
            assert own + final <= bound("all_reduce", plan) <= own + 1.2 * final
            assert 0 < np.abs(out - exact[group.rank]).max() <= own
        with pytest.raises(tersum.InvalidArgumentError, match="all_gather sums nothing up"):
            bound("all_gather", "auto")

    run_group(size, body)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_all_gather(run_group: Any, size: int, dtype: str) -> None:
    results = run_group(size, lambda g: g.all_gather(values(g.rank, (3, 5), dtype)))
    expected = np.concatenate([values(rank, (3, 5), dtype) for rank in range(size)])
    for result in results:
        assert result.tobytes() == expected.tobytes() and result.shape == (3 * size, 5)


def test_all_gather_of_scalars_is_a_vector(run_group: Any) -> None:
    results = run_group(3, lambda g: g.all_gather(np.asarray(g.rank + 0.5)))
    for result in results:
        np.testing.assert_array_equal(result, [0.5, 1.5, 2.5])


@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcast(run_group: Any, root: int, dtype: str) -> None:
    results = run_group(3, lambda g: g.broadcast(values(g.rank, (11,), dtype), root))
    for result in results:
        assert result.tobytes() == values(root, (11,), dtype).tobytes()


@pytest.mark.parametrize("codec", ["bf16", "int8/128", "int4"])
def test_lossy_gather_and_broadcast_give_every_rank_the_same_bits(
    run_group: Any, codec: str
) -> None:
    def body(group: tersum.Communicator) -> tuple[Any, Any]:
        x = values(group.rank, (1000,), "float32")
        return group.all_gather(x, codec=codec), group.broadcast(x, 1, codec=codec)

    results = run_group(3, body)
    assert same_bits([gathered for gathered, _ in results])
    assert same_bits([sent for _, sent in results])
    error = np.abs(results[0][1] - values(1, (1000,), "float32")).max()
    assert 0 < error < 0.5


@pytest.mark.parametrize("count", [0, 1, 2, 127, 129, 10_007])
@pytest.mark.parametrize("size", [1, 3])
def test_any_length(run_group: Any, size: int, count: int) -> None:
    results = run_group(size, lambda g: g.all_reduce(np.full(count, 2.0, np.float32), codec="int8"))
    for result in results:
        assert result.shape == (count,)
        np.testing.assert_allclose(result, 2.0 * size, rtol=1e-2)


def test_barrier_waits_for_every_rank(run_group: Any) -> None:
    entered: list[int] = []

    def body(group: tersum.Communicator) -> int:
        entered.append(group.rank)
        group.barrier()
        return len(entered)

    assert run_group(4, body) == [4, 4, 4, 4]


def test_split_orders_by_key(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> tuple[int, int, float] | None:
        part = group.split(-1 if group.rank == 4 else group.rank % 2, key=-group.rank)
        if part is None:
            return None
        with part:
            total = part.all_reduce(np.full(3, float(group.rank), np.float32), codec="exact")
            return part.rank, part.size, float(total[0])

    assert run_group(5, body) == [(1, 2, 2.0), (1, 2, 4.0), (0, 2, 2.0), (0, 2, 4.0), None]


def test_stats_count_what_was_done(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> tersum.CommunicatorStats:
        x = np.ones(128 * 1024, np.float32)
        group.all_reduce(x, codec="int8/128", plan="two_step")
        return group.stats()

    for stats in run_group(2, body):
        assert stats.calls == 1
        assert stats.values == 128 * 1024
        # Two steps: half the values out, half the sum out; 130 bytes for every 128 values.
        assert stats.wire_bytes_sent == 1024 * 130
        assert stats.wire_bytes_received == 1024 * 130
        assert stats.seconds > 0


def test_all_transports_agree(run_group: Any) -> None:
    results = {
        transport: run_group(
            2,
            lambda g: g.all_reduce(values(g.rank, (5000,), "float32"), codec="int8/64"),
            transport=transport,
        )
        for transport in ("auto", "tcp", "shm")
    }
    every = [result for group in results.values() for result in group]
    assert same_bits(every)


def test_size_one_needs_no_store() -> None:
    with tersum.Communicator(0, 1) as group:
        np.testing.assert_array_equal(group.all_reduce(np.arange(5.0), codec="exact"), np.arange(5))
        assert group.split(0) is not None
