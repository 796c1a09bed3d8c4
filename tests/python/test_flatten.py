"""+flatten: the diagonal that a site's own sums calibrate, the same on all ranks with no exchange.

Lines of the codec reference (section 2c) that a test holds are named in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

import itertools

from flatten_state import FlattenState, two_step_flattened
from simulate_codecs import OUTLIERS, make_data, relative_error, two_step

Run = Callable[..., list[Any]]
Data = np.ndarray[Any, Any]
RANKS = 8
CHANNELS = 4096
SEED = 77


def act(call: int, rows: int = 64, ranks: int = RANKS, moved: int = 0) -> Data:
    """(ranks, rows, CHANNELS): four channels a hundred times as large as the others."""
    data = make_data("normal", ranks, rows * CHANNELS, SEED + call).reshape(ranks, rows, CHANNELS)
    data[:, :, (np.array(OUTLIERS) + moved) % CHANNELS] *= 100
    return data


def small(call: int, ranks: int = 3, rows: int = 24, channels: int = 96) -> Data:
    random = np.random.default_rng(SEED + call)
    data = random.standard_normal((ranks, rows, channels)) * np.geomspace(1, 300, channels)
    return data.astype(np.float32)


def error(got: Data, data: Data) -> float:
    return relative_error(got.reshape(-1), data.reshape(len(data), -1))


def agreed(results: list[Any]) -> Any:
    """The ranks' common result."""
    first = results[0]
    if isinstance(first, list):
        return [agreed([result[i] for result in results]) for i in range(len(first))]
    if isinstance(first, np.ndarray):
        assert all(result.tobytes() == first.tobytes() for result in results)
    else:
        assert all(result == first for result in results)
    return first


def test_six_calls_of_outlier_channels(run_group: Run) -> None:
    """2c and 3, FlatQuant: 64 x 4,096, int4/128: the first call 0.085, later ones at most 0.060."""
    calls = [act(call) for call in range(6)]

    def body(group: tersum.Communicator) -> list[Data]:
        return [
            group.all_reduce(data[group.rank], codec="int4/128+flatten", plan="two_step")
            for data in calls
        ]

    state = FlattenState(CHANNELS)
    for call, (got, data) in enumerate(zip(agreed(run_group(RANKS, body)), calls, strict=True)):
        rows = data.reshape(RANKS, -1)
        simulated = relative_error(two_step_flattened("int4/128", rows, state), rows)
        assert error(got, data) <= (0.085 if call == 0 else 0.060), f"call {call}, seed {SEED}"
        assert error(got, data) == pytest.approx(simulated, rel=0.12), f"call {call}, seed {SEED}"


@pytest.mark.parametrize("shape", [(24, 96), (3, 5), (700, 7)])
def test_the_state_is_the_documented_one_bit_for_bit(
    run_group: Run, shape: tuple[int, int]
) -> None:
    """2c, Same bits: float64, fixed order, square roots only."""
    calls = [small(call, 2, *shape) for call in range(4)]

    def body(group: tersum.Communicator) -> list[Any]:
        seen: list[Any] = []
        for data in calls:
            seen.append(group.all_reduce(data[group.rank], codec="int5/32+flatten"))
            seen.append(group.save_flatten())
        return seen

    seen = agreed(run_group(2, body))
    state = FlattenState(shape[1])
    for call in range(4):
        state.observe(seen[2 * call])
        saved = seen[2 * call + 1]
        assert saved[:16] == b"tersumF1" + (1).to_bytes(8, "little")
        assert int.from_bytes(saved[24:32], "little") == shape[1]
        assert saved[32:-8] == state.saved(call + 1), f"call {call}, seed {SEED}"


def test_outliers_that_move_cost_one_call(run_group: Run) -> None:
    """2c, When: one bad call, at most 2.3 times Hadamard's error, then recovery."""
    calls = [act(call, moved=700 * (call >= 3)) for call in range(6)]
    plain = [
        relative_error(two_step("int6/128+hadamard", d), d)
        for d in (data.reshape(RANKS, -1) for data in calls)
    ]

    def body(group: tersum.Communicator) -> list[Data]:
        return [group.all_reduce(data[group.rank], codec="int6/128+flatten") for data in calls]

    errors = [error(g, d) for g, d in zip(agreed(run_group(RANKS, body)), calls, strict=True)]
    assert errors[3] <= 2.3 * plain[3], f"seed {SEED}"
    for call in (1, 2, 4, 5):
        assert errors[call] <= 0.75 * plain[call], f"call {call}, seed {SEED}"


@pytest.mark.parametrize("plan", ["two_step", "ring", "one_shot", "tree", "halving_doubling"])
@pytest.mark.parametrize("shape", [(24, 96), (7, 31), (1, 2), (40, 1000)])
def test_every_plan_gives_all_ranks_the_same_bits(
    run_group: Run, plan: str, shape: tuple[int, int]
) -> None:
    calls = [small(call, 3, *shape) for call in range(4)]

    def body(group: tersum.Communicator) -> list[Any]:
        results: list[Any] = [
            group.all_reduce(data[group.rank], codec="int8/32+flatten", plan=plan) for data in calls
        ]
        return [*results, group.save_flatten()]

    *results, _ = agreed(run_group(3, body))
    for got, data in zip(results, calls, strict=True):
        assert error(got, data) < 0.02, f"seed {SEED}"


@pytest.mark.parametrize(
    ("kind", "most", "with_outliers"), [("act", 0.052, 0.052), ("spikes", 0.050, 0.058)]
)
def test_what_sparse_sends_apart_is_not_learned_from(
    run_group: Run, kind: str, most: float, with_outliers: float
) -> None:
    """2c, With sparse: `act` 0.051 and spikes at most 0.062; a diagonal of spikes costs more."""
    calls = [make_data(kind, RANKS, 64 * CHANNELS, SEED + call) for call in range(3)]
    codec = "int4/128+flatten+sparse:0.2%"

    def body(group: tersum.Communicator) -> list[Data]:
        own = [data[group.rank].reshape(-1, CHANNELS) for data in calls]
        results = [group.all_reduce(x, codec=codec, plan="two_step") for x in own]
        # Another site's state has seen the whole sums, since nothing travelled apart.
        for x in own[:2]:
            group.all_reduce(x, codec="int4/128+flatten", plan="two_step", site="whole")
        return [*results, group.all_reduce(own[2], codec=codec, plan="two_step", site="whole")]

    *results, whole = agreed(run_group(RANKS, body))
    for call, (got, data) in enumerate(zip(results, calls, strict=True)):
        assert error(got, data) <= most, f"call {call}, seed {SEED}"
    assert error(whole, calls[2]) >= with_outliers, f"seed {SEED}"


@pytest.mark.parametrize("plan", ["two_step", "ring", "one_shot", "tree", "halving_doubling"])
@pytest.mark.parametrize("modifiers", ["", "+rows:96", "+feedback"])
def test_no_rank_learns_of_a_spike_in_any_plan(run_group: Run, plan: str, modifiers: str) -> None:
    calls = [small(call, 3, 40, 1000) for call in range(3)]
    for call, data in enumerate(calls):
        for rank in range(3):
            data[rank, 7 * call + rank, 13 * call + rank] = 1e6
    codec = f"int8/32+flatten+sparse:1%{modifiers}"

    def body(group: tersum.Communicator) -> list[Any]:
        results: list[Any] = [
            group.all_reduce(data[group.rank], codec=codec, plan=plan, site="spiked")
            for data in calls
        ]
        return [*results, group.save_flatten()]

    *results, saved = agreed(run_group(3, body))
    mean_squares = np.frombuffer(saved[48:-8], "<f8")
    assert mean_squares.size == 1000
    # A channel's 1e6 in one of 120 rows would be 8e9.
    assert 0 < mean_squares.max() < 1e6, f"seed {SEED}"
    for got, data in zip(results, calls, strict=True):
        assert error(got, data) < 0.02, f"seed {SEED}"


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
def test_short_floats(run_group: Run, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    calls = [small(call) for call in range(3)]
    kind = torch.bfloat16 if dtype == "bfloat16" else torch.float16

    def body(group: tersum.Communicator) -> list[Data]:
        return [
            group.all_reduce(torch.tensor(data[group.rank]).to(kind), codec="int8/128+flatten")
            .float()
            .numpy()
            for data in calls
        ]

    for got, data in zip(agreed(run_group(3, body)), calls, strict=True):
        assert error(got, data) < 0.02


def test_without_channels_it_is_hadamard(run_group: Run) -> None:
    """2c, Where: 1-D and coalesced arrays, and reduce_scatter."""
    data = small(0, 4, 32, 128)

    def body(group: tersum.Communicator) -> list[Data]:
        x, out = data[group.rank], []
        for codec in ("int6/128+flatten", "int6/128+hadamard"):
            for _ in range(3):
                flat = group.all_reduce(x.reshape(-1), codec=codec)
                part = group.reduce_scatter(x, codec=codec)
                together = group.all_reduce_coalesced([x, x[:3]], codec=codec)
            out.append(np.concatenate([a.reshape(-1) for a in (flat, part, *together)]))
        return out

    for flattened, rotated in run_group(4, body):
        assert flattened.tobytes() == rotated.tobytes()


def test_calls_of_one_site_in_flight_run_in_their_order(run_group: Run) -> None:
    calls = [small(call) for call in range(6)]
    codec = "int4/32+flatten"

    def one_by_one(group: tersum.Communicator) -> list[Data]:
        return [group.all_reduce(data[group.rank], codec=codec, site="a") for data in calls]

    def together(group: tersum.Communicator) -> list[Data]:
        works = [group.all_reduce_async(d[group.rank], codec=codec, site="a") for d in calls]
        works += [group.all_reduce_async(d[group.rank], codec=codec, site="b") for d in calls]
        return [work.result() for work in works]

    expected = agreed(run_group(3, one_by_one))
    got = agreed(run_group(3, together))
    for i, result in enumerate(got):
        assert result.tobytes() == expected[i % 6].tobytes(), f"call {i}, seed {SEED}"


def test_states_are_saved_loaded_and_reset(run_group: Run) -> None:
    calls = [small(call) for call in range(4)]
    codec = "int6/32+flatten"

    def learn(group: tersum.Communicator) -> list[Any]:
        results: list[Any] = [group.all_reduce(d[group.rank], codec=codec) for d in calls[:3]]
        saved = group.save_flatten()
        return [*results, saved, group.all_reduce(calls[3][group.rank], codec=codec)]

    first, *_, saved, last = agreed(run_group(3, learn))

    def go_on(group: tersum.Communicator) -> list[Any]:
        group.load_flatten(saved)
        loaded = group.all_reduce(calls[3][group.rank], codec=codec)
        group.reset_flatten("another site")
        assert group.save_flatten() != saved
        group.reset_flatten()
        return [loaded, group.all_reduce(calls[0][group.rank], codec=codec)]

    loaded, after_reset = agreed(run_group(3, go_on))
    assert loaded.tobytes() == last.tobytes()
    assert after_reset.tobytes() == first.tobytes()


@pytest.mark.parametrize("root", [0, 2])
def test_a_late_joiner_receives_what_a_rank_has_learned(run_group: Run, root: int) -> None:
    """2c, Version: state is valid when the next call agrees, so whoever joins must be given it."""
    calls = [small(call) for call in range(4)]
    codec = "int6/32+flatten"

    def body(group: tersum.Communicator) -> list[Data]:
        def reduce(call: int) -> Data:
            return group.all_reduce(calls[call][group.rank], codec=codec, site="a")

        for call in range(3):
            reduce(call)
        saved = group.save_flatten()
        before = reduce(3)
        group.load_flatten(saved)
        # Rank 1 joins now: it knows nothing of this site, but something of one that nobody has.
        if group.rank == 1:
            group.reset_flatten()
            group.load_flatten(foreign)
        with pytest.raises(tersum.DisagreementError):
            reduce(3)
        group.share_flatten(root, timeout_ms=20_000)
        assert group.save_flatten() == saved
        return [before, reduce(3)]

    def learn_elsewhere(group: tersum.Communicator) -> bytes:
        group.all_reduce(calls[0][group.rank], codec=codec, site="another")
        return group.save_flatten()

    foreign = run_group(1, learn_elsewhere)[0]
    before, after = agreed(run_group(3, body))
    assert after.tobytes() == before.tobytes()


def test_nothing_learned_is_shared_too(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> bytes:
        if group.rank == 1:
            group.load_flatten(saved)
        group.share_flatten()
        return group.save_flatten()

    def learn(group: tersum.Communicator) -> bytes:
        group.all_reduce(small(0, 1)[0], codec="int6/32+flatten")
        return group.save_flatten()

    saved = run_group(1, learn)[0]
    nothing = run_group(1, lambda group: group.save_flatten())[0]
    assert agreed(run_group(2, body)) == nothing
    with pytest.raises(tersum.InvalidArgumentError, match="root"):
        run_group(2, lambda group: group.share_flatten(2))


def test_saved_bytes_that_are_damaged_change_nothing(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = small(0, 1)[0]
        group.all_reduce(x, codec="int6/32+flatten")
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

    run_group(1, body)


def test_states_that_differ_are_an_error_and_not_noise(run_group: Run) -> None:
    """2c, Version: a stale step is invisible to accuracy, so it must be said."""
    calls = [small(call) for call in range(4)]
    codec = "int6/32+flatten"

    def body(group: tersum.Communicator) -> Data:
        def reduce(call: int) -> Data:
            return group.all_reduce(calls[call][group.rank], codec=codec)

        reduce(0)
        if group.rank == 1:
            group.reset_flatten()
        with pytest.raises(tersum.DisagreementError, match=r"\+flatten, \+clip or kmeans knows"):
            reduce(1)
        group.reset_flatten()
        return reduce(0)

    agreed(run_group(3, body))


def test_ranks_that_name_other_sites_or_shapes_disagree(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = small(0)[group.rank]
        with pytest.raises(tersum.DisagreementError, match=r"\+flatten, \+clip or kmeans knows"):
            group.all_reduce(x, codec="int6+flatten", site=f"rank {group.rank}")
        with pytest.raises(tersum.DisagreementError, match=r"\+flatten, \+clip or kmeans knows"):
            group.all_reduce(x if group.rank else x.T, codec="int6+flatten")
        with pytest.raises(tersum.DisagreementError, match=r"\+flatten, \+clip or kmeans knows"):
            group.all_reduce(x if group.rank else x.reshape(-1), codec="int6+flatten")
        group.all_reduce(x, codec="int6+flatten")

    run_group(3, body)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_teaches_nothing(run_group: Run, poison: float) -> None:
    calls = [small(call) for call in range(3)]
    codec = "int8/32+flatten"

    def body(group: tersum.Communicator) -> list[Any]:
        group.all_reduce(calls[0][group.rank], codec=codec)
        x = calls[1][group.rank].copy()
        x[3, 40] = poison
        bad = group.all_reduce(x, codec=codec)
        assert np.isnan(bad[3, 32:64]).all()
        assert np.isfinite(np.delete(bad, 3, axis=0)).all()
        return [bad, group.all_reduce(calls[2][group.rank], codec=codec)]

    _, after = agreed(run_group(3, body))
    assert error(after, calls[2]) < 0.01


def test_silent_channels_may_wake(run_group: Run) -> None:
    """2c, State: with a floor under the mean square, a channel that revives stays small trouble."""
    calls = [small(call) for call in range(4)]
    for data in calls[:2]:
        data[:, :, 10:20] = 0
    zero = np.zeros_like(calls[0])
    calls.insert(0, zero)

    def body(group: tersum.Communicator) -> list[Data]:
        return [group.all_reduce(d[group.rank], codec="int8/32+flatten") for d in calls]

    results = agreed(run_group(3, body))
    assert not results[0].any()
    for got, data in zip(results[1:], calls[1:], strict=True):
        assert error(got, data) < 0.02


def test_looking_at_every_third_call_only(run_group: Run) -> None:
    calls = [small(call) for call in range(7)]

    def body(group: tersum.Communicator) -> list[bytes]:
        states = []
        for data in calls:
            group.all_reduce(data[group.rank], codec="int8/32+flatten")
            states.append(group.save_flatten()[48:-8])  # behind site, channels, calls and rows
        return states

    states = agreed(run_group(3, body, flatten_every=3))
    assert [a != b for a, b in itertools.pairwise(states)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_bad_arguments(run_group: Run) -> None:
    with pytest.raises(tersum.InvalidArgumentError, match="flatten_every must be 1 or more"):
        tersum.Communicator(0, 1, flatten_every=0)

    def body(group: tersum.Communicator) -> None:
        x = small(0)[group.rank]
        for spec, why in {
            "int8+flatten+hadamard": "flatten contains hadamard",
            "int8+flatten+flatten": "stands twice",
            "int8+flatten:3": "is written",
            "bf16+flatten": "takes no modifier",
            "int8+flat": "known are .*flatten, hadamard",
        }.items():
            with pytest.raises(tersum.InvalidArgumentError, match=why):
                group.all_reduce(x, codec=spec)

    run_group(2, body)

    with pytest.raises(tersum.DisagreementError, match="flatten_every"):
        _disagree_on_every()


def _disagree_on_every() -> None:
    import concurrent.futures

    store = tersum.MemoryStore()

    def join(rank: int) -> None:
        tersum.Communicator(rank, 2, store, flatten_every=rank + 1, timeout_ms=5_000).close()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(join, rank) for rank in range(2)]:
            future.result(30)


@pytest.mark.parametrize("plan", ["two_step", "one_shot", "tree"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("codec", "op", "every"),
    [
        ("int8/128+flatten", "sum", 1),
        ("int4/32+flatten", "avg", 2),
        ("nf4/64+flatten+sparse:1%", "sum", 1),
        ("int6/64+flatten+rows:1000", "avg", 1),
        ("int4/128+flatten+clip:learned", "sum", 1),
        ("int5/32+flatten+shiftadd", "sum", 1),
    ],
)
def test_16_bit_sums_teach_what_they_hold_before_they_are_rounded(
    run_group: Run, plan: str, dtype: str, codec: str, op: str, every: int
) -> None:
    """float32 arrays of the same values have the same payloads, and their results are not rounded.
    Rows are many enough that not all are looked at, and end inside of blocks and slices."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)
    calls = [make_data("act", 3, 520 * 1000, SEED + call) for call in range(3)]
    calls = [data.astype(kind).reshape(3, 520, 1000) for data in calls]

    def states(group: tersum.Communicator) -> list[Any]:
        both = []
        for name, wide in (("short", False), ("wide", True)):
            saved = []
            for data in calls:
                x = data[group.rank].astype(np.float32) if wide else data[group.rank]
                group.all_reduce(x, op, codec=codec, plan=plan, site=name)
                saved.append(group.save_flatten()[16 + 8 :])  # without the site's key
            group.reset_flatten()
            both.append([state[:-8] for state in saved])  # nor the seal
        return both

    short, wide = agreed(run_group(3, states, flatten_every=every))
    if "+clip" in codec:  # its calls are told apart by type
        cut = 8 + 8 + 8 + 8 * 1000
        short, wide = [s[:cut] for s in short], [s[:cut] for s in wide]
    assert short == wide, f"seed {SEED}"
