"""+clip:learned: one scale a slice, from a clip that calls learn; scales of blocks until it pays.

Lines of the codec reference (section 3, PAMS) that a test holds are named in it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clip_calls import SEED, Data, Run, agreed, calls_of, errors_of, is_held, sums_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

import clip_report
import clipped_slices
from float_rounding import float32
from format_table import parse_spec
from learned_clip import Clips, Site

PLANS = ("two_step", "ring", "one_shot", "tree", "halving_doubling", "bidirectional_ring")


@pytest.mark.parametrize(
    ("codec", "first", "held"),
    [
        ("int4/128", 0.164, 0.160),
        ("int4/1024", 0.200, 0.160),
        ("int3/32", 0.320, 0.300),
        ("int2/32", 0.96, 0.60),
    ],
)
def test_calls_of_eight_ranks_learn_a_clip(
    run_group: Run, codec: str, first: float, held: float
) -> None:
    """3, PAMS: at 4.00 bits better than int4/128; two steps, N(0,1)."""
    calls = calls_of("normal", 8, 65_536, 16)
    results, states, sent = sums_of(run_group, codec + "+clip:learned", calls)
    errors = errors_of(results, calls)
    plain, _, _ = sums_of(run_group, codec, calls[:1])
    assert results[0].tobytes() == plain[0].tobytes()  # nothing is known yet
    assert max(errors) <= first, f"seed {SEED}: {errors}"
    assert max(errors[-3:]) <= held, f"seed {SEED}: {errors}"
    assert not any(map(is_held, states[:2]))
    assert all(map(is_held, states[-4:]))
    # Fourteen chunks of 8,192 values leave a rank, seven contributions and the sum seven times.
    bits, block = int(codec[3]), int(codec.split("/")[1])
    codes = 14 * (8192 * bits // 8 + 64)
    assert (sent[0], sent[-1]) == (codes + 14 * 8192 // block * 2, codes + 14 * 4)


def test_one_coding_comes_near_the_best_clip(run_group: Run) -> None:
    """3, PAMS: per tensor int4, N(0,1): absmax 0.179, learned 0.1139, best clip 0.1139."""
    calls = calls_of("normal", 2, 65_536, 16)
    results, states, _ = sums_of(run_group, "int4/1024+clip:learned", calls, plan="one_shot")
    assert all(is_held(state, replicated=True) for state in states[-6:])
    errors = errors_of(results, calls)
    assert max(errors[-4:]) <= 1.01 * 0.1139, f"seed {SEED}: {errors}"


@pytest.mark.parametrize(
    ("codec", "kind"),
    [
        *[("int4/128", kind) for kind in ("act", "grad", "spikes", "identical", "tokens")],
        ("int4/128+hadamard", "act"),
        ("int4/32", "normal"),
        ("int5/128", "normal"),
        ("int2/32", "act"),
    ],
)
def test_where_no_clip_pays_it_falls_back(run_group: Run, codec: str, kind: str) -> None:
    """3, PAMS: on outlier channels a learned clip is worse than absmax: the guard."""
    calls = calls_of(kind, 8, 32_768, 12)
    errors = errors_of(sums_of(run_group, codec + "+clip:learned", calls)[0], calls)
    plain = errors_of(sums_of(run_group, codec, calls)[0], calls)
    for call, (learned, blocks) in enumerate(zip(errors, plain, strict=True)):
        assert learned <= 1.05 * blocks, f"call {call}, seed {SEED}"


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_every_plan_learns_the_same_on_all_ranks(run_group: Run, plan: str, op: str) -> None:
    calls = calls_of("normal", 4, 5003, 16)
    codec = "int2/32+clip:learned"
    results, states, _ = sums_of(run_group, codec, calls, op, plan)
    scale = 4 if op == "avg" else 1
    errors = errors_of([scale * result for result in results], calls)
    assert is_held(states[-2], plan == "one_shot"), f"seed {SEED}"
    assert errors[-1] <= 0.75 * errors[0], f"seed {SEED}: {errors}"


@pytest.mark.parametrize("plan", ["one_shot", "two_step"])
@pytest.mark.parametrize("modifier", ["", "+hadamard"])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_calls_are_the_documented_ones_bit_for_bit(
    run_group: Run, plan: str, modifier: str, op: str
) -> None:
    """Payloads, what is learned of them, and the next payloads, beside plain Python."""
    ranks, chunk, text = 3, 64, f"int3/32{modifier}+clip:learned"
    calls = calls_of("normal", ranks, ranks * chunk, 14)
    calls[9] *= 50
    calls[11][1, 40] = np.inf
    results, states, _ = sums_of(run_group, text, calls, op, plan)
    site, spec, divisor = Site(), parse_spec(text), ranks if op == "avg" else 1
    held_calls = 0
    for call, data in enumerate(calls):
        held = site.is_held(plan == "one_shot")
        held_calls += held
        known = (float32(site.contributions.clip), float32(site.sums.clip))
        clips = Clips(*known, ranks, divisor)
        rows = [[float(x) for x in row] for row in data]
        expected: list[float] = []
        report = clip_report.Report()
        if plan == "one_shot":
            sent = [
                clipped_slices.encode_contribution(spec, "float32", row, held, clips)
                for row in rows
            ]
            count = len(rows[0])
            expected = clipped_slices.plain_sum(spec, "float32", count, sent, held, divisor)
            for payload in sent:
                report = report.added(clip_report.unpack(payload))
        for owner in range(ranks if plan == "two_step" else 0):
            parts = [row[owner * chunk : (owner + 1) * chunk] for row in rows]
            sent = [
                clipped_slices.encode_contribution(spec, "float32", part, held, clips)
                for rank, part in enumerate(parts)
                if rank != owner
            ]
            total = clipped_slices.sum_payload(
                spec, "float32", sent, parts[owner], owner, held, clips, divisor, is_final=True
            )
            expected += clipped_slices.decode(spec, "float32", chunk, total, held)
            report = report.added(clip_report.unpack(total))
        site.learn(report)
        where = f"call {call}, seed {SEED}"
        np.testing.assert_array_equal(results[call], np.array(expected, np.float32), where)
        assert states[call][40:-8] == site.saved(), where
    assert 0 < held_calls < len(calls)


def test_a_burst_costs_one_call(run_group: Run) -> None:
    calls = calls_of("normal", 4, 20_000, 24)
    calls[12] *= 100
    codec = "int2/32+clip:learned"
    results, states, _ = sums_of(run_group, codec, calls)
    errors = errors_of(results, calls)
    assert is_held(states[11])
    assert np.isfinite(results[12]).all()
    assert 0.9 < errors[12] < 1
    assert not is_held(states[12])
    assert max(errors[13:]) <= 1.02 * errors[0], f"seed {SEED}: {errors}"
    assert is_held(states[-1])
    assert errors[-1] <= 1.05 * errors[11], f"seed {SEED}: {errors}"


def test_what_ends_small_is_followed(run_group: Run) -> None:
    """From one call to the next a thousandth: the clip comes down with the largest magnitude."""
    calls = calls_of("normal", 2, 20_000, 24)
    for data in calls[12:]:
        data *= np.float32(1e-3)
    results, states, _ = sums_of(run_group, "int2/32+clip:learned", calls)
    errors = errors_of(results, calls)
    assert max(errors[13:]) <= 1.02 * errors[0], f"seed {SEED}: {errors}"
    assert is_held(states[-1])
    assert errors[-1] <= 1.05 * errors[11], f"seed {SEED}: {errors}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats(run_group: Run, dtype: str) -> None:
    kind = np.float16 if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    calls = [data.astype(kind) for data in calls_of("normal", 3, 8192, 14)]
    results, states, _ = sums_of(run_group, "int2/32+clip:learned", calls)
    wide = [data.astype(np.float32) for data in calls]
    errors = errors_of([result.astype(np.float32) for result in results], wide)
    assert is_held(states[-2])
    assert errors[-1] <= 0.75 * errors[0], f"seed {SEED}: {errors}"


@pytest.mark.parametrize("modifier", ["hadamard", "flatten"])
def test_with_a_rotation(run_group: Run, modifier: str) -> None:
    """The clip is one of rotated values; a diagonal is learned beside it."""
    calls = [data.reshape(2, 16, 1024) for data in calls_of("normal", 2, 16_384, 16)]
    for data in calls:
        data[:, :, 7] *= 20
    codec = f"int2/32+{modifier}"

    def body(group: tersum.Communicator) -> list[Data]:
        return [
            group.all_reduce(data[group.rank], codec=name, plan="two_step", site=name)
            for data in calls
            for name in (codec, codec + "+clip:learned")
        ]

    results = agreed(run_group(2, body))
    flat = [data.reshape(2, -1) for data in calls]
    plain = errors_of([result.ravel() for result in results[::2]], flat)
    learned = errors_of([result.ravel() for result in results[1::2]], flat)
    assert learned[0] == plain[0]
    assert learned[-1] <= 0.8 * plain[-1], f"seed {SEED}: {learned} beside {plain}"


def test_lists_of_tensors_learn_together(run_group: Run) -> None:
    calls = calls_of("normal", 2, 400_000, 14)
    codec = "int2/32+clip:learned"

    def body(group: tersum.Communicator) -> list[Any]:
        results = []
        for data in calls:
            mine = data[group.rank]
            tensors = [mine[:3], mine[3:900], mine[900:70_000], mine[70_000:]]  # one travels alone
            got = group.all_reduce_coalesced(tensors, codec=codec, site="list")
            results.append(np.concatenate(got))
        return results

    errors = errors_of(agreed(run_group(2, body)), calls)
    assert errors[-1] <= 0.75 * errors[0], f"seed {SEED}: {errors}"


def test_a_residual_is_learned_from(run_group: Run) -> None:
    calls = calls_of("normal", 2, 3000, 12)
    codec = "int2/32+clip:learned"

    def body(group: tersum.Communicator) -> list[Data]:
        half = [np.float32(0.5) * data[group.rank] for data in calls]
        return [group.all_reduce(x, codec=codec, residual=x) for x in half]

    expected, _, _ = sums_of(run_group, codec, calls, plan="auto")
    for got, whole in zip(agreed(run_group(2, body)), expected, strict=True):
        assert got.tobytes() == whole.tobytes()
