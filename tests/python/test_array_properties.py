"""Properties of all_reduce over arbitrary arrays. Hypothesis prints the example and the seed with
which a failure comes back (``--hypothesis-seed``)."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import tersum

SETTINGS = settings(max_examples=60, deadline=None, print_blob=True)
SIZE = 3


@pytest.fixture(scope="module")
def lanes() -> Any:
    """A group of threads that lives for the whole module: ``lanes(body)`` runs it on every rank."""
    import concurrent.futures

    store = tersum.MemoryStore()
    with concurrent.futures.ThreadPoolExecutor(SIZE) as pool:
        made = [pool.submit(tersum.Communicator, rank, SIZE, store) for rank in range(SIZE)]
        groups = [future.result(30) for future in made]

        def run(body: Any) -> list[Any]:
            return [f.result(60) for f in [pool.submit(body, group) for group in groups]]

        yield run
        for future in [pool.submit(group.close) for group in groups]:
            future.result(30)


finite = st.floats(-1e6, 1e6, width=32)
shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=40)


@SETTINGS
@given(data=st.data(), shape=shapes, seed=st.integers(0, 2**32 - 1))
def test_any_shape_and_strides(lanes: Any, data: st.DataObject, shape: Any, seed: int) -> None:
    generator = np.random.default_rng(seed)
    base = [generator.integers(-99, 99, (*shape, 2)).astype(np.float32) for _ in range(SIZE)]
    axes = data.draw(st.permutations(range(len(shape))))
    inputs = [np.transpose(x[..., 0], axes) for x in base]  # never contiguous, if not empty
    results = lanes(lambda g: g.all_reduce(inputs[g.rank], codec="exact"))
    for result in results:
        assert result.shape == inputs[0].shape
        np.testing.assert_array_equal(result, sum(inputs))


@SETTINGS
@given(
    x=npst.arrays(np.float32, st.integers(0, 700), elements=finite),
    codec=st.sampled_from(["bf16", "int8/32", "int8/128", "int4/64", "int8/1024"]),
    plan=st.sampled_from(["auto", "two_step", "ring", "one_shot"]),
)
def test_every_element_is_within_the_bound(lanes: Any, x: Any, codec: str, plan: str) -> None:
    inputs = [x, -x[::-1], x * np.float32(0.5)]

    def body(group: tersum.Communicator) -> tuple[Any, float]:
        result = group.all_reduce(inputs[group.rank], codec=codec, plan=plan)
        absmax = max((float(np.abs(v).max()) for v in inputs if v.size), default=0.0)
        bound = group.error_bound(codec, plan=plan, count=x.size, absmax=absmax)
        return result, bound

    results = lanes(body)
    expected = np.sum([v.astype(np.float64) for v in inputs], axis=0)
    hypothesis.note(f"codec {codec}, plan {plan}, {x.size} values")
    for result, bound in results:
        assert result.tobytes() == results[0][0].tobytes()
        assert np.all(np.abs(result - expected) <= bound)


@SETTINGS
@given(
    x=npst.arrays(np.float32, st.integers(1, 300), elements=st.floats(-10, 10, width=32)),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    data=st.data(),
    codec=st.sampled_from(["exact", "bf16", "int8/32", "int4/32"]),
)
def test_what_is_not_finite_never_disappears(
    lanes: Any, x: Any, bad: float, data: st.DataObject, codec: str
) -> None:
    where = data.draw(st.integers(0, x.size - 1))
    rank = data.draw(st.integers(0, SIZE - 1))
    poisoned = x.copy()
    poisoned[where] = bad
    results = lanes(lambda g: g.all_reduce(poisoned if g.rank == rank else x, codec=codec))
    for result in results:
        assert not np.isfinite(result[where])
