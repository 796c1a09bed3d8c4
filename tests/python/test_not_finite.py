"""A NaN or an infinity on one rank of several, in a sum by every format and modifier: its block,
and no other, arrives as NaN on all ranks.

How far it reaches is what docs/codecs.md says, "The NaN and Inf rule" and, where formats have a
scale for more than a block, the sections on those.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tersum
from tersum.codecs import codec_info

Run = Callable[..., list[Any]]
Floats = npt.NDArray[np.float32]
RANKS = 4
#: Rows of channels for +flatten, which has seen enough after one call; the last block is short.
SHAPE = (71, 89)
COUNT = SHAPE[0] * SHAPE[1]
SEED = 4711
ROW = 97
CELL = 32
#: The first, one in the middle, one in a block's last place, and the last of the short block.
PLACES = (0, 2500, 4095, COUNT - 1)
BAD = (np.nan, np.inf, -np.inf)
TABLE = sorted(Path(__file__).resolve().parents[1].glob("golden/codec/tables/*.txt"))[0]

FORMATS = [f"int{bits}" for bits in range(8, 0, -1)]
FORMATS += ["five", "fp8e4m3", "fp8e5m2", "nf4", "table:TABLE", "nvfp4"]
POWERS = ["mxfp8:e4m3", "mxfp8:e5m2", "mxfp6:e2m3", "mxfp6:e3m2", "mxfp4", "mxint8"]
#: With scales that are powers of two, which a ring has to be told to take.
FORMATS += [f"{name}+hops" for name in POWERS]
SPECS = [
    *FORMATS,
    *(f"{name}+hadamard" for name in FORMATS if not name.endswith("+hops")),
    *(f"{name}+hadamard+hops" for name in POWERS),
    *(f"{base}+flatten" for base in ("int8/32", "int4/128", "int1", "five", "nvfp4", "nf4")),
    *(f"{base}+sparse:1%" for base in ("int8", "int4/1024", "int1", "five", "nvfp4", "fp8e4m3")),
    "int4/128+flatten+sparse:0.2%",
    *(f"{base}+rows:{ROW}" for base in ("int8/32", "int4/128", "int1", "nvfp4")),
    f"int6/32+rows:{ROW}+sparse:1%",
    *(f"int{bits}/64+mixed" for bits in range(7, 2, -1)),
    "int4/128+hadamard+mixed",
    "int4/64+adaptive",
    "nf4/128+adaptive",
    *(f"{base}+sr" for base in ("int8", "int2", "five", "fp8e5m2", "nf4", "int4+hadamard")),
    "mxfp4+sr+hops",
    *(f"int{bits}/64+shiftadd+hops" for bits in (8, 5, 2)),
    "mxint8+shiftadd+hops",
    "int6/128+hadamard+shiftadd+hops",
    "mxfp8:e4m3+floor+hops",
    "int4/128+clip:learned",
    "int4/32+feedback",
    f"int2/32+feedback+rows:{ROW}",
    "int8/128+KRONECKER",
    "int3/128+KRONECKER+mixed",
    "sum8/256",
    "sum8/32+sr",
    f"sum8/32+rows:{ROW}",
    f"sum8/64+rows:{ROW}+hadamard+sr",
    "sum8:tensor",
    "sum8:tensor+sr",
    "sum8/256+hadamard",
    "sum8/64+hadamard+sr",
    "sum8:tensor+hadamard",
    "lut2",
    f"lut2+rows:{ROW}",
    "sum:exp",
    # The first call of a site teaches their levels.
    "kmeans:4/64",
    f"kmeans:16/32+rows:{ROW}",
    "bf16",
]


def spec_of(text: str) -> str:
    """With a table's file, and matrices by the digest under which this process then knows them."""
    p1, p2 = (
        np.linalg.qr(np.random.default_rng(SEED + n).standard_normal((n, n)))[0] for n in (8, 16)
    )
    text = text.replace("TABLE", str(TABLE))
    return text.replace("KRONECKER", tersum.register_kronecker(p1, p2))


def reach(spec: str, where: int) -> range:
    """The places that share the fate of one."""
    if spec.startswith(("sum8:tensor", "sum:exp")):  # one scale for the whole call
        return range(COUNT)
    if spec == "bf16":
        return range(where, where + 1)
    # Nothing costs +adaptive more than a NaN in a larger block than a cell.
    block = CELL if "+adaptive" in spec else codec_info(spec).block
    begin, end = (where // ROW * ROW, ROW) if "+rows" in spec else (0, COUNT)
    first = begin + (where - begin) // block * block
    return range(first, min(first + block, begin + end, COUNT))


def plans_of(spec: str) -> tuple[str, ...]:
    if spec == "sum:exp":
        return ("two_step",)
    if spec.startswith("lut2"):
        return ("two_step", "one_shot")
    return ("two_step", "one_shot", "ring", "halving_doubling")


def depends_on_others(spec: str) -> bool:
    """Do a block's bytes follow from more than its own values (or from a call's random numbers, or
    from what calls before it owe)?"""
    if spec.startswith(("nvfp4", "sum8:tensor", "sum:exp")):
        return True
    return any(f"+{name}" in spec for name in ("sparse", "mixed", "adaptive", "sr", "feedback"))


def calls(group: tersum.Communicator, spec: str, data: Floats) -> list[tuple[Any, ...]]:
    """Results with something bad in one rank's values, and without."""
    seen: list[tuple[Any, ...]] = []
    own = data[group.rank]
    for plan in plans_of(spec):
        reduce = functools.partial(group.all_reduce, codec=spec, plan=plan)
        reduce(own, site=plan)  # what +flatten learns from; of what is not finite it learns nothing
        results = []
        for turn, (bad, where) in enumerate(itertools.product(BAD, PLACES)):
            values = own.copy()
            if group.rank == (turn + 1) % RANKS:
                values.reshape(-1)[where] = bad
            results.append((plan, bad, where, reduce(values, site=plan)))
        clean = reduce(own, site=plan)
        seen += [(*result, clean) for result in results]
    return seen


@pytest.mark.parametrize("text", SPECS)
def test_its_block_and_no_other_is_nan_on_every_rank(run_group: Run, text: str) -> None:
    spec = spec_of(text)
    data = np.random.default_rng(SEED).standard_normal((RANKS, *SHAPE)).astype(np.float32)
    for of_ranks in zip(*run_group(RANKS, lambda g: calls(g, spec, data)), strict=True):
        plan, bad, where, got, clean = of_ranks[0]
        name = f"{plan}, {bad} at {where}, seed {SEED}"
        assert all(result[3].tobytes() == got.tobytes() for result in of_ranks), name
        got = got.reshape(-1)
        expected = list(reach(spec, where))
        assert np.flatnonzero(~np.isfinite(got)).tolist() == expected, name
        assert spec == "bf16" or np.isnan(got[expected]).all(), name
        assert np.isfinite(clean).all(), f"{name}, a later call"
        if not depends_on_others(spec) and "+clip" not in spec:
            others = np.delete(clean.reshape(-1), expected)
            assert np.delete(got, expected).tobytes() == others.tobytes(), name


MOST = float(np.finfo(np.float16).max)


def reached(group: tersum.Communicator, spec: str, plan: str, held: float, sums: float) -> float:
    how: dict[str, Any] = {"count": COUNT, "dtype": "float16", "plan": plan}
    return sums + group.error_bound(spec, absmax=held, sum_absmax=sums, **how)


def near_the_end(group: tersum.Communicator, spec: str, data: Floats) -> list[tuple[str, Any]]:
    """Sums of float16, of all ranks' values and of one rank's alone, which with their errors stay
    within the type as barely as possible."""
    seen: list[tuple[str, Any]] = []
    for plan, adders in itertools.product(plans_of(spec), (RANKS, 1)):
        held = MOST / adders
        while reached(group, spec, plan, held, adders * held) > MOST:
            held *= 0.98
        values = (data[group.rank] * held if group.rank < adders else 0 * data[0]).astype(
            np.float16
        )
        name = f"{plan}, {adders} x {held}"
        seen.append((name, group.all_reduce(values, codec=spec, plan=plan, site=name)))
    return seen


# What +feedback owes from calls before has no bound.
@pytest.mark.parametrize("text", [text for text in SPECS if "+feedback" not in text])
def test_sums_that_have_room_for_their_errors_are_finite(run_group: Run, text: str) -> None:
    """docs/codecs.md, near the end of the type: an error takes no sum to an infinity, or to NaN,
    that is farther from it than its bound."""
    spec = spec_of(text)
    signs = np.random.default_rng(SEED).choice([-1.0, 0.0, 1.0, 1.0], SHAPE)
    data = np.broadcast_to(signs, (RANKS, *SHAPE)).astype(np.float32)
    for of_ranks in zip(*run_group(RANKS, lambda g: near_the_end(g, spec, data)), strict=True):
        for name, got in of_ranks:
            assert np.isfinite(got).all(), f"{name}, seed {SEED}"
