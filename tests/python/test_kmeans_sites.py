"""codec="kmeans:K": the first sum of a site travels as int8 and teaches the levels of all later
ones, the same on every rank."""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

from best_levels import best_levels, observed_blocks
from clip_calls import SEED, Data, Run, agreed, calls_of, sums_in_flight, sums_of
from simulate_codecs import make_data, relative_error

COUNT = 8192
#: Of a saved site: its key, 1, the digest of its spec, the number of levels, and the levels.
SAVED = struct.Struct("<QQQQ16f")


def learned_levels(saved: bytes) -> list[Data]:
    """What docs/wire-format.md says is in them, where nothing else is."""
    assert saved[:8] == b"tersumF1"
    (sites,) = struct.unpack_from("<Q", saved, 8)
    assert len(saved) == 16 + sites * SAVED.size + 8
    found = []
    for i in range(sites):
        _, mark, _, count, *levels = SAVED.unpack_from(saved, 16 + i * SAVED.size)
        assert mark == 1 and not any(levels[count:])
        found.append(np.array(levels[:count], np.float32))
    return found


def levels_of(values: Data, levels: int, block: int = 64, row: int = 0) -> Data:
    """By docs/codecs.md."""
    row = row or values.size
    ends = [*range(row, values.size, row), values.size]
    blocks = [
        values[begin : min(begin + block, end)]
        for end in ends
        for begin in range((end - 1) // row * row, end, block)
    ]
    parts, weights = [], []
    for index in observed_blocks(len(blocks), 65536 // block):
        part = blocks[index].astype(np.float64)
        absmax = np.abs(part).max(initial=0)
        if absmax == 0 or not np.isfinite(absmax):
            continue
        mantissa, exponent = np.frexp(absmax)
        scale = np.ldexp(np.ceil(mantissa * 256) / 256, exponent)
        parts.append(part / scale)
        weights.append(np.full(part.size, scale**2))
    return best_levels(np.concatenate(parts), np.concatenate(weights), levels)


@pytest.mark.parametrize("levels", [2, 4, 8, 16])
@pytest.mark.parametrize("kind", ["normal", "grad"])
@pytest.mark.parametrize("plan", ["two_step", "ring", "one_shot", "tree"])
def test_the_first_sum_teaches_all_later_ones(
    run_group: Run, levels: int, kind: str, plan: str
) -> None:
    calls = calls_of(kind, 3, COUNT, 3)
    results, states, sent = sums_of(run_group, f"kmeans:{levels}", calls, plan=plan)
    first, _, in_bytes = sums_of(run_group, "int8/64", calls[:1], plan=plan)
    assert results[0].tobytes() == first[0].tobytes(), f"seed {SEED}"
    assert sent[0] == in_bytes[0]
    expected = levels_of(first[0], levels)
    (found,) = learned_levels(states[0])
    assert found.tobytes() == expected.tobytes()
    assert states[1:] == states[:1] * 2  # learned once
    table = tersum.register_table(expected) + "/64"
    later, _, in_bytes = sums_of(run_group, table, calls[1:], plan=plan)
    assert [got.tobytes() for got in results[1:]] == [got.tobytes() for got in later]
    assert sent[1:] == in_bytes and sent[1] < 0.62 * sent[0]


def test_learned_levels_suit_what_nf4_does_not(run_group: Run) -> None:
    """Values that are mostly small: nf4 spends its levels where there is little."""
    rng = np.random.default_rng(SEED)
    calls = [rng.laplace(size=(2, COUNT)).astype(np.float32) ** 3 for _ in range(4)]
    learned, _, _ = sums_of(run_group, "kmeans:16/64", calls)
    fixed, _, _ = sums_of(run_group, "nf4/64", calls)
    for got, other, data in zip(learned[1:], fixed[1:], calls[1:], strict=True):
        assert relative_error(got, data) <= 0.97 * relative_error(other, data), f"seed {SEED}"


def test_they_are_about_as_good_as_levels_learned_by_a_call(run_group: Run) -> None:
    """Sums are nearer to normal than contributions are, of which most of the error is."""
    calls = calls_of("grad", 4, 1 << 16, 3)

    def body(group: tersum.Communicator) -> list[Data]:
        spec = group.learn_codec("kmeans:16/64", calls[0][group.rank])
        return [group.all_reduce(data[group.rank], codec=spec) for data in calls[1:]]

    by_call = agreed(run_group(4, body))
    by_site, _, _ = sums_of(run_group, "kmeans:16/64", calls)
    for got, other, data in zip(by_site[1:], by_call, calls[1:], strict=True):
        assert relative_error(got, data) <= 1.06 * relative_error(other, data), f"seed {SEED}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bits_teach_too(run_group: Run, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)
    calls = [data.astype(kind) for data in calls_of("normal", 2, COUNT, 2)]
    results, states, _ = sums_of(run_group, "kmeans:8/32", calls, "avg")
    (found,) = learned_levels(states[0])
    assert found.tobytes() == levels_of(results[0].astype(np.float32), 8, 32).tobytes()
    table = tersum.register_table(found) + "/32"
    later, _, _ = sums_of(run_group, table, calls[1:], "avg")
    assert results[1].tobytes() == later[0].tobytes()


def test_blocks_begin_anew_with_rows_and_outliers_travel_apart(run_group: Run) -> None:
    rng = np.random.default_rng(SEED)
    data = rng.normal(size=(2, 96, 80)).astype(np.float32)
    data[:, ::3, 5] *= 1000
    calls = [data.reshape(2, -1)] * 2
    results, states, _ = sums_of(run_group, "kmeans:4/64+rows:80", calls)
    (found,) = learned_levels(states[0])
    assert found.tobytes() == levels_of(results[0], 4, 64, 80).tobytes()
    results, states, _ = sums_of(run_group, "kmeans:16/64+sparse:1%", calls)
    (apart,) = learned_levels(states[0])
    # A finished sum of two ranks has room for both ranks' outliers.
    dense = results[0].copy()
    dense[np.argsort(np.abs(dense))[-dense.size // 50 :]] = 0
    assert np.abs(apart - levels_of(dense, 16)).max() < 0.01
    assert np.abs(apart - levels_of(results[0], 16)).max() > 0.05
    table = tersum.register_table(apart) + "/64+sparse:1%"
    later, _, _ = sums_of(run_group, table, calls[1:])
    assert results[1].tobytes() == later[0].tobytes()


@pytest.mark.parametrize(("block", "row"), [(64, 0), (32, 0), (64, 80), (128, 1024), (1024, 5000)])
def test_of_large_sums_blocks_from_all_over_are_looked_at(
    run_group: Run, block: int, row: int
) -> None:
    """Not the same columns of each row: here the first half of them is 0."""
    data = make_data("normal", 2, 301 * 1024, SEED).reshape(2, -1, 1024)
    data[:, :, :512] = 0
    rows = f"+rows:{row}" if row else ""
    results, states, _ = sums_of(run_group, f"kmeans:8/{block}{rows}", [data.reshape(2, -1)])
    (found,) = learned_levels(states[0])
    assert found.tobytes() == levels_of(results[0], 8, block, row).tobytes()


def test_sites_and_specs_learn_apart(run_group: Run) -> None:
    normal, grad = (calls_of(kind, 2, COUNT, 1)[0] for kind in ("normal", "grad"))

    def body(group: tersum.Communicator) -> list[Any]:
        for codec in ("kmeans:16/64", "kmeans:16/32", "kmeans:4/64"):
            group.all_reduce(normal[group.rank], codec=codec, site="a")
        group.all_reduce(grad[group.rank], codec="kmeans:16", site="b")
        group.all_reduce(grad[group.rank], codec="kmeans:16", site="c", out=np.empty_like(grad[0]))
        # Of any length, type and operation.
        x = normal[group.rank]
        later = group.all_reduce(x[:100].astype(np.float16), "avg", codec="kmeans:16", site="a")
        saved = group.save_flatten()
        group.reset_flatten("a")
        return [saved, later.astype(np.float32), group.save_flatten()]

    saved, later, rest = agreed(run_group(2, body))
    assert sorted(len(levels) for levels in learned_levels(saved)) == [4, 16, 16, 16, 16]
    assert len(learned_levels(rest)) == 2
    assert 0.03 < relative_error(2 * later, normal[:, :100]) < 0.2


def test_states_are_saved_loaded_and_shared(run_group: Run) -> None:
    calls = calls_of("grad", 3, COUNT, 2)
    codec = "kmeans:8/64"
    results, states, _ = sums_of(run_group, codec, calls)

    def loads(group: tersum.Communicator) -> list[Any]:
        group.load_flatten(states[0])
        return [group.all_reduce(calls[1][group.rank], codec=codec, plan="two_step")]

    assert agreed(run_group(3, loads))[0].tobytes() == results[1].tobytes()

    def shares(group: tersum.Communicator) -> list[Any]:
        if group.rank == 1:
            group.load_flatten(states[0])
        with pytest.raises(tersum.DisagreementError, match="kmeans"):
            group.all_reduce(calls[1][group.rank], codec=codec)
        group.share_flatten(1)
        return [group.all_reduce(calls[1][group.rank], codec=codec, plan="two_step")]

    assert agreed(run_group(3, shares))[0].tobytes() == results[1].tobytes()


def test_what_cannot_teach_does_not(run_group: Run) -> None:
    """Too few values, zeros, what is not finite, and sums that no rank has the whole of."""
    rng = np.random.default_rng(SEED)
    values = rng.normal(size=(2, COUNT)).astype(np.float32)

    def body(group: tersum.Communicator) -> list[Any]:
        x = values[group.rank]
        for bad in (x[:1023], 0 * x, np.full_like(x, np.nan)):
            got = group.all_reduce(bad, codec="kmeans:16")
            assert got.tobytes() == group.all_reduce(bad, codec="int8/64").tobytes()
        for call in (group.reduce_scatter, group.all_gather, group.all_to_all):
            assert call(x, codec="kmeans:16").tobytes() == call(x, codec="int8/64").tobytes()
        whole = group.all_reduce(x.astype(np.int64), codec="kmeans:16")
        assert whole.dtype == np.int64 and (whole == values.astype(np.int64).sum(0)).all()
        top = group.all_reduce(x, "max", codec="kmeans:16")
        assert (top == values.max(0)).all()
        before = [len(levels) for levels in learned_levels(group.save_flatten())]
        # The rest of an array that is not finite in places teaches, and then the sums of one rank
        # take the levels.
        x = x.copy()
        x[700] = np.inf
        group.all_reduce(x, codec="kmeans:16")
        (levels,) = learned_levels(group.save_flatten())
        table = tersum.register_table(levels) + "/64"
        part = group.reduce_scatter(x, codec="kmeans:16")
        assert part.tobytes() == group.reduce_scatter(x, codec=table).tobytes()
        return [before, levels]

    before, levels = agreed(run_group(2, body))
    assert before == [0] and len(levels) == 16


def test_calls_in_flight_take_turns_until_there_are_levels(run_group: Run) -> None:
    calls = calls_of("normal", 3, 3000, 8)
    codec = "kmeans:8/32"
    expected, _, _ = sums_of(run_group, codec, calls, plan="auto")
    for i, result in enumerate(sums_in_flight(run_group, codec, calls)):
        assert result.tobytes() == expected[i % 8].tobytes(), f"call {i}, seed {SEED}"


def test_lists_of_tensors_learn_from_their_buckets(run_group: Run) -> None:
    shapes = [(700,), (64, 33), (5,), (4000,)]
    data = [make_data("normal", 2, int(np.prod(shape)), SEED + i) for i, shape in enumerate(shapes)]

    def body(group: tersum.Communicator) -> list[Any]:
        mine = [d[group.rank].reshape(s) for d, s in zip(data, shapes, strict=True)]
        first = group.all_reduce_coalesced(mine, codec="kmeans:16")
        later = group.all_reduce_coalesced(mine, codec="kmeans:16")
        return [first, later, learned_levels(group.save_flatten())]

    first, later, (levels,) = agreed(run_group(2, body))
    assert len(levels) == 16
    for tensor, again, ranks in zip(first, later, data, strict=True):
        assert relative_error(tensor.reshape(-1), ranks) < 0.02
        assert relative_error(again.reshape(-1), ranks) < 0.2
    assert relative_error(later[3], data[3]) > 0.04  # no longer int8


@pytest.mark.parametrize("codec", ["kmeans:16/64", "int4/128+clip:learned"])
@pytest.mark.parametrize("site", ["", "a"])
@pytest.mark.parametrize("zeros", [0, 2, 8])
def test_lists_and_arrays_in_flight_do_not_wait_for_each_other(
    run_group: Run, codec: str, site: str, zeros: int
) -> None:
    """The first buckets teach nothing, and ranks get on at different speeds."""
    data = make_data("normal", 2, 8 << 18, SEED).reshape(2, 8, -1).copy()
    data[:, :zeros] = 0

    def body(group: tersum.Communicator) -> list[Any]:
        lists, singles = [], []
        for _ in range(2):
            tensors = list(data[group.rank])
            lists.append(group.all_reduce_coalesced_async(tensors, codec=codec, site=site))
            if group.rank == 1:
                time.sleep(0.1)
            singles.append(group.all_reduce_async(data[group.rank, 7], codec=codec, site=site))
        results = [tensor for work in lists for tensor in work.result()]
        results += [work.result() for work in singles]
        learned = len(group.save_flatten())
        group.reset_flatten(site)
        return [*results, learned, len(group.save_flatten())]

    *_, learned, rest = agreed(run_group(2, body))
    assert learned > 24 + 8 * 100  # of the buckets, too
    assert rest == 24  # and no site is left


@pytest.mark.parametrize("codec", ["kmeans:4/64", "int4/128+clip:learned", "int4+feedback"])
def test_other_lists_of_one_site_in_flight_keep_their_order(run_group: Run, codec: str) -> None:
    """Packed and direct tensors, which get ready at different times, and ranks that wait."""
    rng = np.random.default_rng(SEED)
    lists = [[65_003] * 4 + [2_500] + [300_000] * 2, [80_000] * 3, [400_000, 5, 70_000, 70_000]]
    data = [[rng.normal(size=(3, n)).astype(np.float32) for n in lengths] for lengths in lists]
    waits = rng.random((3, 12)) * 0.01

    def body(group: tersum.Communicator) -> list[Data]:
        works = []
        for i in range(12):
            tensors = [tensor[group.rank] for tensor in data[i % 3]]
            site = "" if i % 4 == 3 and "feedback" not in codec else "a"
            works.append(group.all_reduce_coalesced_async(tensors, codec=codec, site=site))
            time.sleep(waits[group.rank, i])
        return [tensor for work in works for tensor in work.result()]

    agreed(run_group(3, body))


def test_what_fills_buckets_up_does_not_count(run_group: Run) -> None:
    rng = np.random.default_rng(SEED)
    data = (3 + rng.random((2, 400, 5))).astype(np.float32)

    def body(group: tersum.Communicator) -> list[Any]:
        few = [np.ones(1, np.float32)] * 40  # 40 values in 2,560
        group.all_reduce_coalesced(few, codec="kmeans:4", site="few")
        group.all_reduce_coalesced(list(data[group.rank]), codec="kmeans:4", site="many")
        return [sorted(tuple(levels) for levels in learned_levels(group.save_flatten()))]

    ((few, many),) = agreed(run_group(2, body))
    assert not few
    # Its zeros cost one level.
    assert many[0] == 0 and many[1] > 0.7, many


def test_zeros_that_fill_rows_up_arrive_as_zeros(run_group: Run) -> None:
    rng = np.random.default_rng(SEED)
    data = np.zeros((2, 200, 64), np.float32)
    data[:, :, :40] = 3 + rng.random((2, 200, 40))
    calls = [data.reshape(2, -1)] * 2
    for levels, bound in ((4, 0.05), (16, 0.02)):
        results, _, _ = sums_of(run_group, f"kmeans:{levels}/64", calls)
        assert relative_error(results[1], calls[1]) < bound
        assert not results[1].reshape(200, 64)[:, 40:].any()


def test_a_rank_that_forgot_alone_is_told_so(run_group: Run) -> None:
    data = make_data("normal", 2, COUNT, SEED)

    def body(group: tersum.Communicator) -> list[Data]:
        x = data[group.rank]
        group.all_reduce(x, codec="kmeans:4", site="a")
        if group.rank == 1:
            group.reset_flatten("a")
        with pytest.raises(tersum.DisagreementError, match="kmeans"):
            group.all_reduce(x, codec="kmeans:4", site="a")
        group.reset_flatten("a")
        return [group.all_reduce(x, codec="kmeans:4", site="a")]

    (got,) = agreed(run_group(2, body))
    assert relative_error(got, data) < 0.02


def test_the_plan_is_that_of_the_table(run_group: Run) -> None:
    """Where a plan is left open, it goes by what a sum takes once there are levels."""
    for count in (1000, 5000, 30_000, 200_000):
        calls = calls_of("normal", 4, count, 2)
        calls[0] = make_data("normal", 4, 4096, SEED)
        results, states, sent = sums_of(run_group, "kmeans:4", calls, plan="auto")
        table = tersum.register_table(learned_levels(states[0])[0]) + "/64"
        expected, _, in_bytes = sums_of(run_group, table, calls[1:], plan="auto")
        assert results[1].tobytes() == expected[0].tobytes() and sent[1] == in_bytes[0], count


def test_ranks_that_name_other_sites_disagree(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = np.ones(100, np.float32)
        with pytest.raises(tersum.DisagreementError, match="kmeans"):
            group.all_reduce(x, codec="kmeans:4", site=f"rank {group.rank}")
        group.all_reduce(x, codec="kmeans:4")

    run_group(2, body)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("kmeans", 'did you mean "kmeans:16"'),
        ("kmean:16", 'did you mean "kmeans:16"'),
        ("kmeans:16+hops", "powers of two"),
        ("kmeans:5", "2, 4, 8 or 16 levels"),
        ("kmeans:", "2, 4, 8 or 16 levels"),
        ("kmeans:16/48", "block"),
        ("kmeans:16/16", "block"),
        ("kmeans:16+hadamard", "sparse and rows alone"),
        ("kmeans:16+flatten", "sparse and rows alone"),
        ("kmeans:16+feedback", "sparse and rows alone"),
        ("kmeans:16+sr", "sparse and rows alone"),
        ("kmeans:4+rows:0", "rows"),
    ],
)
def test_bad_specs_are_refused_with_the_reason(spec: str, message: str) -> None:
    with (
        tersum.Communicator(0, 1) as group,
        pytest.raises(tersum.InvalidArgumentError, match=message),
    ):
        group.all_reduce(np.ones(4, np.float32), codec=spec)


def test_what_is_said_of_the_spec_holds_once_there_are_levels() -> None:
    info = tersum.codec_info("kmeans:16")
    assert (info.spec, info.block, info.lossless) == ("kmeans:16/64", 64, False)
    assert info.wire_bits == tersum.codec_info("nf4/64").wire_bits
    assert tersum.codec_wire_bytes("kmeans:8/32", 5003) == tersum.codec_wire_bytes("int3", 5003)
    with pytest.raises(tersum.InvalidArgumentError, match="without a call"):
        tersum.encode_payload(np.ones(4, np.float32), "kmeans:16")
    # That of any levels: a value and a level may lie at the two ends.
    assert 2 <= tersum.codec_error_bound("kmeans:16", 1.0) < 2.05
