"""How wrong a group's AllReduce is, by the engine, beside a simulation that shares no code with it:
every format, the modifiers that change what is sent, and the formats of sums, on three kinds of
data.

Reference lines: section 2, "Key table" and "Shared scale, integers summed on the wire", of which
the simulation is another way to the same figures, which test_codec_errors.py holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tersum

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

from error_cases import (
    COUNT,
    OF_CHANNELS,
    RANKS,
    SEED,
    SPECS,
    WITHIN,
    Data,
    data_of,
    repeated,
    simulated,
)
from flatten_state import FlattenState, two_step_flattened
from learned_clip import Site
from simulate_clips import two_step_clipped
from simulate_codecs import exponent_sum, make_data, relative_error, shared_sum

Run = Callable[..., list[Any]]
#: Rounded at random.
RANDOM = ["int8/32", "int4/32", "int2/32", "five/32", "fp8e4m3", "mxfp6:e2m3", "nf4/64"]
RANDOM += ["mxint8", "int4/128+hadamard", "int5/64+sparse:0.5%"]
#: Rows that are shorter than a block, consist of blocks, or have a scale of their own.
ROWS = ["int8/128+rows:64", "five/1024+rows:256", "int4/32+rows:512", "fp8e4m3/32+rows:2048"]
ROWS += ["nvfp4+rows:256", "nf4/64+rows:256+hadamard", "int6/32+rows:1024+sparse:0.5%"]
#: Of sums, whose integers or exponents are added as they are.
SUMS = ["sum8/256", "sum8/32+sr", "sum8:tensor", "sum8:tensor+sr", "lut2", "sum:exp"]
SUMS += ["sum8/256+hadamard", "sum8/32+hadamard+sr", "sum8:tensor+hadamard"]
SUMS += ["sum8/256+rows:64", "sum8/32+rows:512+hadamard+sr", "lut2/64+rows:32", "lut2/32+rows:8"]


def contribute(group: tersum.Communicator, data: Data, **how: Any) -> Any:
    """One rank's result."""
    return group.all_reduce(data[group.rank], **how)


def error_of_group(run_group: Run, data: Data, **how: Any) -> float:
    """Of a sum that is the same on all ranks."""
    results = run_group(len(data), partial(contribute, data=data, **how))
    assert all(result.tobytes() == results[0].tobytes() for result in results), f"seed {SEED}"
    return relative_error(results[0], data)


def sum_of(spec: str, data: Data) -> Any:
    """By the simulation of scales that ranks share."""
    return exponent_sum(data) if spec == "sum:exp" else shared_sum(spec, data)


@pytest.mark.parametrize("spec", [*SPECS, *ROWS, OF_CHANNELS])
def test_a_group_has_the_error_of_the_simulation(run_group: Run, spec: str) -> None:
    for kind, within in WITHIN.items():
        data = data_of(kind, RANKS)
        got = error_of_group(run_group, data, codec=spec, plan="two_step")
        expected = pytest.approx(simulated(spec, kind), rel=within)
        assert got == expected, f"{kind}, seed {SEED}"


@pytest.mark.parametrize("base", RANDOM)
def test_random_rounding_has_the_error_of_the_simulation(run_group: Run, base: str) -> None:
    """Section 1: SR multiplies the error of one quantization by about sqrt 2."""
    spec = f"{base}+sr"
    for kind, within in WITHIN.items():
        data = repeated(kind)
        got = error_of_group(run_group, data, codec=spec, plan="two_step")
        expected = pytest.approx(simulated(spec, kind), rel=within)
        assert got == expected, f"{kind}, seed {SEED}"


@pytest.mark.parametrize("spec", SUMS)
def test_shared_scales_have_the_error_of_the_simulation(run_group: Run, spec: str) -> None:
    for kind, within in WITHIN.items():
        data = repeated(kind)
        got = error_of_group(run_group, data, codec=spec)
        expected = pytest.approx(relative_error(sum_of(spec, data), data), rel=within)
        assert got == expected, f"{kind}, seed {SEED}"


def in_calls(group: tersum.Communicator, calls: list[Data], **how: Any) -> list[Any]:
    """One rank's results, one call after the other at one site."""
    return [contribute(group, data, **how) for data in calls]


def hold_calls(
    run_group: Run, calls: list[Data], expected: list[float], within: float, **how: Any
) -> None:
    """Every call's error is that of the simulation, and ranks have the same sums."""
    ranks = run_group(RANKS, partial(in_calls, calls=calls, plan="two_step", **how))
    for call, results in enumerate(zip(*ranks, strict=True)):
        where = f"call {call}, seed {SEED}"
        assert all(result.tobytes() == results[0].tobytes() for result in results), where
        got = relative_error(results[0].reshape(-1), calls[call].reshape(RANKS, -1))
        assert got == pytest.approx(expected[call], rel=within), where


#: Learns of 16 rows before it has factors.
FLATTENED = ["int8/128", "int6/128", "int4/128", "int3/32", "five/32", "int1/32"]
FLATTENED += ["fp8e4m3/128", "mxfp6:e2m3", "mxfp4", "nvfp4", "nf4/64"]


@pytest.mark.parametrize("base", FLATTENED)
def test_calibrated_sums_have_the_error_of_the_simulation(run_group: Run, base: str) -> None:
    """Section 2c: three calls, of which the last two have the factors of what was summed before."""
    channels = 1024
    for kind, within in WITHIN.items():
        calls = [make_data(kind, RANKS, COUNT, SEED + call) for call in range(3)]
        state = FlattenState(channels)
        simulated_calls = [
            relative_error(two_step_flattened(base, data, state), data) for data in calls
        ]
        shaped = [data.reshape(RANKS, -1, channels) for data in calls]
        hold_calls(run_group, shaped, simulated_calls, within, codec=f"{base}+flatten")


@pytest.mark.parametrize("base", ["int4/128", "int3/32", "int2/32", "int4/128+hadamard"])
def test_learned_clips_have_the_error_of_the_simulation(run_group: Run, base: str) -> None:
    """Section 3, PAMS: in blocks at first, then, where it pays, under a clip that is learned."""
    codec = f"{base}+clip:learned"
    for kind, within in WITHIN.items():
        calls = [make_data(kind, RANKS, COUNT, SEED + call) for call in range(12)]
        site = Site()
        expected = [relative_error(two_step_clipped(codec, data, site), data) for data in calls]
        hold_calls(run_group, calls, expected, within, codec=codec)
        if kind == "normal":
            assert site.is_held(replicated=False), f"seed {SEED}"
