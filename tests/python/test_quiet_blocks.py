"""Arrays of blocks that have hardly anything to code, in a sum by every format and modifier: zeros,
one value everywhere, denormals, and such blocks side by side. All ranks have the same finite sum,
within its stated bound; that of zeros is zero."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tersum

sys.path.insert(0, str(Path(__file__).resolve().parent))

from test_not_finite import SPECS, plans_of, spec_of

Run = Callable[..., list[Any]]
Floats = npt.NDArray[np.float32]
RANKS = 4
SEED = 4712
#: Enough for levels to be learned, of channels for +flatten; the last block is short.
SHAPE = (31, 89)
LEAST = np.float32(2.0**-149)


def array_of(kind: str, rank: int) -> Floats:
    random = np.random.default_rng(SEED + rank)
    values = np.zeros(SHAPE, np.float32)
    flat = values.reshape(-1)
    denormal = (random.integers(-400, 401, flat.size) * LEAST).astype(np.float32)
    if kind == "zeros":
        flat[rank::2] = -0.0
    elif kind == "constant":
        flat[:] = -0.75
    elif kind == "a constant of each rank":
        flat[:] = (1e30, -3e-30, 0.1, 2.0**-126)[rank]
    elif kind == "denormal":
        flat[:] = denormal
    elif kind == "the least":
        flat[:] = LEAST
    elif kind == "one that is denormal":
        flat[1234] = 77 * LEAST
    else:  # side by side, in blocks of the usual size
        what = (np.zeros_like(flat), np.full_like(flat, 5.0), denormal, np.full_like(flat, LEAST))
        kinds = np.arange(flat.size) // 128 % len(what)
        flat[:] = np.choose(kinds, what)
    return values


KINDS = (
    *("zeros", "constant", "a constant of each rank", "denormal", "the least"),
    *("one that is denormal", "side by side"),
)


def bounds_of(group: tersum.Communicator, spec: str, plan: str, kind: str) -> list[float]:
    """Of a site's first call and its second, to which ``+feedback`` adds what the first has lost:
    no more than the bound of that, which its blocks are then larger by, too."""
    arrays = [array_of(kind, rank) for rank in range(RANKS)]
    largest = max(float(np.abs(array).max()) for array in arrays)
    largest_sum = float(np.abs(np.sum(arrays, 0, np.float64)).max())

    def bound(more: float) -> float:
        return group.error_bound(
            spec,
            count=arrays[0].size,
            plan=plan,
            absmax=largest + more,
            sum_absmax=largest_sum + more,
        )

    first = bound(0)
    return [first, first + bound(first) if "+feedback" in spec else first]


def calls(
    group: tersum.Communicator, spec: str
) -> list[tuple[str, str, list[Floats], list[float]]]:
    """By plan and kind the results of two calls of a site, of which the second knows what the first
    has taught, and their bounds."""
    seen = []
    for plan in plans_of(spec):
        for kind in KINDS:
            own = array_of(kind, group.rank)
            site = f"{plan} {kind}"
            sums = [group.all_reduce(own, codec=spec, plan=plan, site=site) for _ in range(2)]
            seen.append((plan, kind, sums, bounds_of(group, spec, plan, kind)))
    return seen


@pytest.mark.parametrize("text", SPECS)
def test_blocks_with_hardly_anything_in_them_are_summed(run_group: Run, text: str) -> None:
    spec = spec_of(text)
    for of_ranks in zip(*run_group(RANKS, lambda group: calls(group, spec)), strict=True):
        plan, kind, sums, bounds = of_ranks[0]
        exact = np.sum([array_of(kind, rank) for rank in range(RANKS)], 0, np.float64)
        for call, got in enumerate(sums):
            name = f"{plan}, {kind}, call {call}, seed {SEED}"
            assert all(other[2][call].tobytes() == got.tobytes() for other in of_ranks), name
            if kind == "zeros":
                assert not got.any(), name
            assert np.abs(got - exact).max() <= bounds[call], name
