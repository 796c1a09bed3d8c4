"""+clip:learned: what sites know, keep, tell each other and refuse, and what they do not learn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clip_calls import (
    SEED,
    Data,
    Run,
    agreed,
    calls_of,
    is_held,
    saved_sites,
    sums_in_flight,
    sums_of,
)
from simulate_codecs import make_data, relative_error


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_nan_and_teaches_nothing(run_group: Run, poison: float) -> None:
    calls = calls_of("normal", 2, 4096, 14)
    for call in (1, 12):
        calls[call][0, 3000] = poison
    results, states, _ = sums_of(run_group, "int2/32+clip:learned", calls)
    lost = np.flatnonzero(np.isnan(results[1]))
    assert list(lost) == list(range(2976, 3008))  # in blocks, its block
    assert is_held(states[11])
    lost = np.flatnonzero(np.isnan(results[12]))
    assert list(lost) == list(range(2048, 4096))  # held, its slice
    assert states[11] == states[12]
    for call in (0, 2, 11, 13):
        assert np.isfinite(results[call]).all()


@pytest.mark.parametrize("count", [0, 1, 31, 1009])
@pytest.mark.parametrize("plan", ["two_step", "ring", "one_shot"])
def test_short_arrays(run_group: Run, count: int, plan: str) -> None:
    calls = calls_of("normal", 3, count, 8)
    results, _, _ = sums_of(run_group, "int8/32+clip:learned", calls, plan=plan)
    for got, data in zip(results, calls, strict=True):
        assert got.shape == (count,)
        assert count == 0 or relative_error(got, data) < 0.1


def test_zeros_stay_zeros(run_group: Run) -> None:
    calls = [np.zeros((2, 100), np.float32)] * 5
    results, states, _ = sums_of(run_group, "int4/32+clip:learned", calls)
    assert not np.any(results)
    assert saved_sites(states[-1])[0][3:] == (0.0, 0.0, 0, 0, 0) * 2


def test_states_are_saved_loaded_and_reset(run_group: Run) -> None:
    calls = calls_of("normal", 3, 3000, 18)

    def reduce(group: tersum.Communicator, data: Data) -> Data:
        return group.all_reduce(data[group.rank], codec="int2/32+clip:learned", plan="two_step")

    def learn(group: tersum.Communicator) -> list[Any]:
        results: list[Any] = [reduce(group, data) for data in calls[:16]]
        saved = group.save_flatten()
        then = [reduce(group, data) for data in calls[16:]]
        return [*results, saved, *then, group.save_flatten()]

    first, *_, saved, next_one, last, end = agreed(run_group(3, learn))
    assert is_held(saved)

    def go_on(group: tersum.Communicator) -> list[Data]:
        group.load_flatten(saved)
        assert group.save_flatten() == saved
        results = [reduce(group, data) for data in calls[16:]]
        assert group.save_flatten() == end
        group.reset_flatten("another site")
        assert group.save_flatten() == end
        group.reset_flatten()
        return [*results, reduce(group, calls[0])]

    again = agreed(run_group(3, go_on))
    for got, expected in zip(again, (next_one, last, first), strict=True):
        assert got.tobytes() == expected.tobytes()


def test_saved_bytes_that_are_damaged_change_nothing(run_group: Run) -> None:
    calls = calls_of("normal", 2, 300, 4)

    def body(group: tersum.Communicator) -> None:
        for data in calls:
            group.all_reduce(data[group.rank], codec="int4/32+clip:learned")
        saved = group.save_flatten()
        for length in range(len(saved)):
            with pytest.raises(tersum.InvalidArgumentError, match="no saved flatten states"):
                group.load_flatten(saved[:length])
        for at in range(len(saved)):
            bad = bytearray(saved)
            bad[at] ^= 0x41
            with pytest.raises(tersum.InvalidArgumentError, match="no saved flatten states"):
                group.load_flatten(bytes(bad))
        assert group.save_flatten() == saved

    run_group(2, body)


def test_states_that_differ_are_an_error_and_not_noise(run_group: Run) -> None:
    calls = calls_of("normal", 3, 3000, 10)
    codec = "int2/32+clip:learned"

    def body(group: tersum.Communicator) -> list[Data]:
        results = [group.all_reduce(d[group.rank], codec=codec) for d in calls]
        assert is_held(group.save_flatten(), replicated=True)
        if group.rank == 1:
            group.reset_flatten()
        with pytest.raises(tersum.DisagreementError, match=r"\+clip"):
            group.all_reduce(calls[0][group.rank], codec=codec)
        group.reset_flatten()
        again = group.all_reduce(calls[0][group.rank], codec=codec)
        assert again.tobytes() == results[0].tobytes()
        return results

    agreed(run_group(3, body))


def test_sites_and_shapes_learn_apart(run_group: Run) -> None:
    small, large = (calls_of("normal", 2, 2000, 10) for _ in range(2))
    for data in large:
        data *= 1000
    codec = "int2/32+clip:learned"

    def body(group: tersum.Communicator) -> list[Any]:
        rank, results = group.rank, []
        out = np.empty(2000, np.float32)
        for a, b in zip(small, large, strict=True):
            results.append(group.all_reduce(a[rank], codec=codec, site="a", out=out).copy())
            results.append(group.all_reduce(b[rank], codec=codec, site="b", out=out).copy())
            group.all_reduce(b[rank][:999], codec=codec, site="a")
            group.all_reduce(b[rank], "avg", codec=codec, site="a")
            group.all_reduce(b[rank], codec="int3/32+clip:learned", site="a")
            group.all_reduce(b[rank].reshape(40, 50), codec=codec, site="a-matrix")
        return [*results, len(saved_sites(group.save_flatten()))]

    *results, sites = agreed(run_group(2, body))
    assert sites == 6
    alone, _, _ = sums_of(run_group, codec, small, plan="auto")
    for got, expected in zip(results[::2], alone, strict=True):
        assert got.tobytes() == expected.tobytes()


def test_ranks_that_name_other_sites_disagree(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = np.ones(100, np.float32)
        with pytest.raises(tersum.DisagreementError, match=r"\+clip"):
            group.all_reduce(x, codec="int4+clip:learned", site=f"rank {group.rank}")
        group.all_reduce(x, codec="int4+clip:learned")

    run_group(2, body)


def test_calls_of_one_site_in_flight_run_in_their_order(run_group: Run) -> None:
    calls = calls_of("normal", 3, 3000, 12)
    codec = "int2/32+clip:learned"
    expected, _, _ = sums_of(run_group, codec, calls, plan="auto")
    for i, result in enumerate(sums_in_flight(run_group, codec, calls)):
        assert result.tobytes() == expected[i % 12].tobytes(), f"call {i}, seed {SEED}"


def test_what_learns_nothing_is_the_format_without_it(run_group: Run) -> None:
    """Where no rank has the whole sum, or nothing is summed: scales of blocks."""
    data = make_data("normal", 2, 4096, SEED)

    def body(group: tersum.Communicator) -> None:
        x = data[group.rank]
        for _ in range(4):
            for call in (group.reduce_scatter, group.all_gather, group.all_to_all):
                plain = call(x, codec="int4/32")
                assert call(x, codec="int4/32+clip:learned").tobytes() == plain.tobytes()
        assert saved_sites(group.save_flatten()) == []
        exact = group.all_reduce(x.astype(np.int64), codec="int4/32+clip:learned")
        assert exact.dtype == np.int64
        assert saved_sites(group.save_flatten()) == []

    run_group(2, body)

    def alone(group: tersum.Communicator) -> None:
        got = group.all_reduce(data[0], codec="int4/32+clip:learned")
        assert got.tobytes() == data[0].tobytes()

    run_group(1, alone)


def test_specs(run_group: Run) -> None:
    for text, name in {
        "int4+clip:learned": "int4/128+clip:learned",
        "int2+clip:learned+hadamard": "int2/32+hadamard+clip:learned",
        "int8/64+clip:learned+flatten": "int8/64+flatten+clip:learned",
    }.items():
        assert tersum.codec_info(text).spec == name
        assert tersum.codec_wire_bytes(text, 0) == 0
        plain = text.replace("+clip:learned", "")
        assert tersum.codec_wire_bytes(text, 777) == tersum.codec_wire_bytes(plain, 777) + 64
        # A held call may lose what is beyond its clip.
        assert tersum.codec_error_bound(text, 1.0) >= 1.0
    for spec, why in {
        "int4+clip": "clip:learned",
        "int4+clip:0.5": "clip:learned",
        "int4+clip:learned+clip:learned": "stands twice",
        "int1+clip:learned": "int2 to int8",
        "five+clip:learned": "int2 to int8",
        "nf4+clip:learned": "int2 to int8",
        "fp8e4m3+clip:learned": "int2 to int8",
        "mxint8+clip:learned": "int2 to int8",
        "nvfp4+clip:learned": "int2 to int8",
        "shiftadd+clip:learned": "no power of two",
        "int4+clip:learned+shiftadd": "no power of two",
        "int4+clip:learned+feedback": "owed without end",
        "int4+rows:64+clip:learned": "one scale for the whole array",
        "int4+sparse:1%+clip:learned": "one of the two",
        "int4/64+clip:learned+mixed": "that a clip replaces",
        "int4/64+clip:learned+adaptive": "that a clip replaces",
        "int4+clip:learned+sr": "no level above",
        "sum8+clip:learned": "is refused: ",
        "bf16+clip:learned": "is refused: ",
    }.items():
        with pytest.raises(tersum.InvalidArgumentError, match=why):
            tersum.codec_info(spec)
