"""codec="auto" with max_rel_error: the cheapest codec that holds on samples of recent calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

Run = Callable[..., list[Any]]
Data = np.ndarray[Any, Any]
SEED = 20261122
# Not measured by the tuner, so that what samples allow is taken and not what is faster here.
PLAN = "bidirectional_ring"
HOW: dict[str, Any] = {"codec": "auto", "plan": PLAN}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERSUM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TERSUM_TUNE", raising=False)


def data_of(rank: int, count: int = 70_000, seed: int = 0) -> Data:
    return np.random.default_rng([SEED, seed, rank]).standard_normal(count, np.float32)


def least_sent(group: tersum.Communicator, allowed: float, x: Data | list[Data]) -> int:
    """Bytes of a call without a sample, which one in 239 takes: of four in a row one does not."""
    sent = []
    for _ in range(4):
        before = group.stats().wire_bytes_sent
        if isinstance(x, list):
            group.all_reduce_coalesced(x, max_rel_error=allowed, **HOW)
        else:
            group.all_reduce(x, max_rel_error=allowed, **HOW)
        sent.append(group.stats().wire_bytes_sent - before)
    return min(sent)


def rel_error(got: Data, parts: list[Data]) -> float:
    exact = np.sum(parts, 0, np.float64)
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("allowed", [1e-6, 4e-3, 1e-2, 3e-2, 0.1, 0.5])
def test_results_stay_within_what_was_allowed(run_group: Run, allowed: float) -> None:
    def body(group: tersum.Communicator) -> Any:
        x = data_of(group.rank)
        out = group.all_reduce(x, max_rel_error=allowed, **HOW)
        choice = group.choose("all_reduce", x.size, plan=PLAN, max_rel_error=allowed)
        return x, out, choice.codec, choice.reason

    results = run_group(3, body)
    assert len({out.tobytes() for _, out, _, _ in results}) == 1
    assert len({codec for _, _, codec, _ in results}) == 1
    error = rel_error(results[0][1], [x for x, _, _, _ in results])
    assert error <= 1.08 * allowed
    assert (results[0][2] == "exact") == (allowed < 1e-3)
    assert "samples of recent calls" in results[0][3]


def test_more_is_allowed_fewer_bytes_are_sent(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> list[int]:
        x = data_of(group.rank)
        sent = []
        for allowed in (1e-6, 4e-3, 1e-2, 2e-2, 4e-2, 0.08, 0.5):
            for _ in range(2):
                group.all_reduce(x, max_rel_error=allowed, **HOW)  # tuning, samples
            sent.append(least_sent(group, allowed, x))
        return sent

    sent = run_group(2, body)[0]
    assert sent == sorted(sent, reverse=True)
    assert sent[0] > 9 * sent[-1]


def test_other_data_means_another_codec(run_group: Run) -> None:
    """One channel in 64 grows a hundredfold: plain blocks lose the others."""

    def body(group: tersum.Communicator) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        x = data_of(group.rank, 280_000)
        for step in range(2000):  # one call in 59 looks, by lot
            if len(seen) > 60 and seen[-40][0] != seen[19][0]:
                break
            if step == 20:
                x[7::64] *= 100
            out = group.all_reduce(np.abs(x), max_rel_error=8e-3, **HOW)
            parts = group.all_gather(np.abs(x), codec="exact").reshape(group.size, -1)
            choice = group.choose("all_reduce", x.size, plan=PLAN, max_rel_error=8e-3)
            seen.append((choice.codec, rel_error(out, list(parts))))
        return seen

    first, second = run_group(2, body)
    assert first == second
    codecs = [codec for codec, _ in first]
    assert len(set(codecs[2:20])) == 1
    noticed = next(step for step in range(20, len(codecs)) if codecs[step] != codecs[19])
    assert all(error <= 1.08 * 8e-3 for _, error in first[2:20] + first[noticed:])


def test_sites_are_apart(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> list[str]:
        x = data_of(group.rank)
        spiky = x.copy()
        spiky[7::64] *= 1000
        for _ in range(2):
            group.all_reduce(x, max_rel_error=1e-2, site="plain", **HOW)
            group.all_reduce(np.sqrt(np.abs(spiky)), max_rel_error=1e-2, site="spiky", **HOW)
        how: dict[str, Any] = {"plan": PLAN, "max_rel_error": 1e-2}
        return [
            group.choose("all_reduce", x.size, site=site, **how).codec
            for site in ("plain", "spiky")
        ]

    plain, spiky = run_group(2, body)[0]
    assert plain == "int8/128"
    assert spiky != plain


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [1, 2, 127, 4097, 70_001])
def test_lengths_and_types(run_group: Run, count: int, dtype: str) -> None:
    def body(group: tersum.Communicator) -> tuple[Data, Data]:
        x = data_of(group.rank, count).astype(dtype)
        return x, group.all_reduce(x, max_rel_error=5e-2, **HOW)

    results = run_group(2, body)
    assert results[0][1].tobytes() == results[1][1].tobytes()
    assert rel_error(results[0][1], [x for x, _ in results]) <= 6e-2


def test_reduce_scatter_residual_and_async(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = data_of(group.rank, 40_000)
        how = {**HOW, "max_rel_error": 2e-2}
        parts = group.all_gather(x, codec="exact").reshape(group.size, -1)
        whole = np.sum(parts, 0, np.float64)
        mine = whole.reshape(group.size, -1)[group.rank]
        part = group.reduce_scatter(x, **how)
        assert np.linalg.norm(part - mine) <= 2.2e-2 * np.linalg.norm(mine)
        # Of ten times the values: samples of x alone would allow a tenth of the error.
        added = group.all_reduce(x, residual=9 * x, **how)
        assert np.linalg.norm(added - 10 * whole) <= 2.2e-2 * np.linalg.norm(10 * whole)
        later = group.all_reduce_async(x, **how).result()
        assert np.linalg.norm(later - whole) <= 2.2e-2 * np.linalg.norm(whole)

    run_group(2, body)


def test_many_arrays_in_one_call_are_sampled_together(run_group: Run) -> None:
    """A list is a site of its own, whatever arrays and other lists were allowed."""

    def body(group: tersum.Communicator) -> tuple[int, list[float]]:
        arrays = [data_of(group.rank, count) for count in (1000, 70_000, 3, 300_000, 0, 129)]
        wholes = [
            group.all_gather(array, codec="exact").reshape(group.size, -1).sum(0, np.float64)
            for array in arrays
        ]
        exact = np.concatenate(wholes)

        def rel_error_of(sums: list[Data]) -> float:
            return float(np.linalg.norm(np.concatenate(sums) - exact) / np.linalg.norm(exact))

        group.all_reduce(data_of(group.rank, 371_132), max_rel_error=0.3, **HOW)
        group.all_reduce_coalesced(arrays[1:], max_rel_error=0.3, **HOW)
        errors = []
        for _ in range(20):
            sums = group.all_reduce_coalesced(arrays, max_rel_error=1e-2, **HOW)
            errors.append(rel_error_of(sums))
        return least_sent(group, 1e-2, arrays), errors

    for sent, errors in run_group(2, body):
        assert all(error <= 1.1e-2 for error in errors), errors
        # The cheapest that holds, int8 or int7 here; neither exact nor what other sites may take.
        assert all(error > 2e-3 for error in errors), errors
        assert sent < 0.27 * 4 * 371_132


def test_a_list_that_is_wrong_is_refused_before_it_is_sampled(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        arrays = [data_of(group.rank, 5000), data_of(group.rank, 100)]
        how: dict[str, Any] = {**HOW, "max_rel_error": 1e-2}
        with pytest.raises(tersum.DisagreementError):
            group.all_reduce_coalesced(arrays[: 2 - group.rank], **how)
        assert group.all_reduce_coalesced([], **how) == []
        sums = group.all_reduce_coalesced(arrays, **how)
        assert [part.size for part in sums] == [5000, 100]

    run_group(2, body)


def test_ranks_that_disagreed_once_agree_again(run_group: Run) -> None:
    """One calls with another length, then names a codec. What follows is right."""

    def body(group: tersum.Communicator) -> None:
        x = data_of(group.rank, 6000)
        how = {**HOW, "max_rel_error": 1e-2}
        with pytest.raises(tersum.DisagreementError):
            group.all_reduce(x[: 6000 - group.rank], **how)
        with pytest.raises(tersum.DisagreementError):
            if group.rank == 0:
                group.all_reduce(x, codec="int8", plan=PLAN)
            else:
                group.all_reduce(x, **how)
        parts = group.all_gather(x, codec="exact").reshape(group.size, -1)
        for _ in range(600):
            assert rel_error(group.all_reduce(x, **how), list(parts)) <= 1.1e-2

    run_group(2, body)


def test_nan_stays_where_it_is(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> list[Data]:
        x = data_of(group.rank)
        results = []
        for step in range(6):
            y = x.copy()
            if group.rank == 1 and step in (0, 3):
                y[::512] = np.nan
            results.append(group.all_reduce(y, max_rel_error=1e-2, **HOW))
        return results

    for step, result in enumerate(run_group(2, body)[0]):
        assert np.isnan(result).any() == (step in (0, 3))


def test_an_array_that_does_not_fit_leaves_the_group_alone(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = data_of(group.rank, 1000)
        with pytest.raises(tersum.InvalidArgumentError, match="does not divide"):
            group.all_reduce(x, bias=x[:7], max_rel_error=1e-2, **HOW)
        group.all_reduce(x, max_rel_error=1e-2, **HOW)

    run_group(2, body)
