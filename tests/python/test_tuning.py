"""Tuning: what is chosen where a call leaves codec or plan open, the cache, rules, bad input."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

Run = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TERSUM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TERSUM_TUNE", raising=False)
    monkeypatch.delenv("TERSUM_TUNE_AT_START", raising=False)
    return tmp_path / "cache"


@pytest.mark.parametrize("size", [2, 3])
def test_auto_gives_all_ranks_the_same_bits_within_the_bound(run_group: Run, size: int) -> None:
    def body(group: tersum.Communicator) -> Any:
        x = np.random.default_rng(group.rank).normal(size=70_001).astype(np.float32)
        return x, group.all_reduce(x, codec="auto"), group.choose("all_reduce", x.size).codec

    results = run_group(size, body)
    exact = sum(x.astype(np.float64) for x, _, _ in results)
    largest = max(float(np.abs(x).max()) for x, _, _ in results)
    assert len({out.tobytes() for _, out, _ in results}) == 1
    assert len({codec for _, _, codec in results}) == 1
    assert np.abs(results[0][1] - exact).max() <= 0.01 * size * largest


def test_a_tight_error_means_exact_and_a_loose_one_lets_int4_in(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> Any:
        group.tune()
        tight = group.choose("all_reduce", 1 << 20, max_rel_error=1e-7)
        loose = group.choose("all_reduce", 1 << 20, max_rel_error=0.5)
        return tight, loose

    for tight, loose in run_group(2, body):
        assert tight.codec == "exact"
        assert {option.codec for option in tight.options} == {"exact"}
        assert "int4/128" in {option.codec for option in loose.options}
        assert loose.seconds == loose.options[0].seconds > 0


def test_choices_that_need_a_table_say_so(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> Any:
        with pytest.raises(tersum.InvalidArgumentError, match=r"call tune\(\) on every rank"):
            group.choose("all_reduce", 1000)
        with pytest.raises(tersum.InvalidArgumentError, match="unknown collective"):
            group.choose("sum", 1000)
        return group.choose("all_reduce", 1000, "int32").codec

    assert run_group(2, body) == ["exact", "exact"]


def test_a_group_may_be_tuned_as_it_starts(
    run_group: Run, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(group: tersum.Communicator) -> int:
        # A plan that is open goes by the table, which choose() would otherwise ask for.
        reason = group.choose("all_reduce", 1 << 16, codec="int8").reason
        assert "measured" in reason, reason
        return len(group.choose("all_reduce", 1 << 16).options)

    def not_measured(group: tersum.Communicator) -> bool:
        with pytest.raises(tersum.InvalidArgumentError, match=r"call tune\(\) on every rank"):
            group.choose("all_reduce", 1 << 16)
        return True

    assert all(run_group(2, measured, tune_at_start=True))
    assert len(list(own_cache.iterdir())) == 1
    monkeypatch.setenv("TERSUM_TUNE_AT_START", "1")
    assert all(run_group(2, measured))
    monkeypatch.setenv("TERSUM_TUNE_AT_START", "0")
    assert all(run_group(2, not_measured, tune_at_start=True))
    monkeypatch.setenv("TERSUM_TUNE_AT_START", "yes")
    with pytest.raises(tersum.InvalidArgumentError, match="TERSUM_TUNE_AT_START is 'yes'"):
        tersum.Communicator(0, 1)


def test_ranks_agree_on_whether_to_tune_as_they_start() -> None:
    store = tersum.MemoryStore()

    def rank_main(rank: int) -> None:
        tersum.Communicator(rank, 2, store, tune_at_start=rank == 0, timeout_ms=20_000).close()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(rank_main, rank) for rank in range(2)]:
            with pytest.raises(tersum.DisagreementError, match=r"tune_at_start: rank . has "):
                future.result(60)


def test_the_table_is_kept_and_a_damaged_one_measured_again(
    run_group: Run, own_cache: Path
) -> None:
    def body(group: tersum.Communicator) -> Any:
        group.tune()
        return group.choose("all_reduce", 1 << 16).options

    run_group(2, body)
    (table,) = own_cache.iterdir()
    kept = table.read_text()
    assert kept.startswith("tersum tuning 17, version ") and "\nexact " in kept
    foreign = kept.replace("version ", "version 9", 1)
    other_host = kept.replace(", hosts ", ", hosts 9", 1)
    assert other_host != kept
    lines = kept.splitlines(keepends=True)
    for damaged in (
        kept[: len(kept) // 2],
        "".join(lines[:-1]),
        "nonsense\n",
        foreign,
        other_host,
        "",
    ):
        table.write_text(damaged)
        assert all(run_group(2, body))
        again = table.read_text()
        assert again != damaged and again.split("\n")[0] == kept.split("\n")[0]


def test_parts_of_a_group_share_their_tuning_with_groups_of_the_same_hosts(
    run_group: Run, own_cache: Path
) -> None:
    def halves(group: tersum.Communicator) -> Any:
        half = group.split(group.rank % 2)
        assert half is not None
        half.tune()
        sums = half.all_reduce(np.ones(5, np.float32), codec="auto")
        return half.choose("all_reduce", 1 << 16).options, float(sums[0])

    for options, total in run_group(4, halves):
        # Which codec the call took is the measurement's affair.
        assert options and total == pytest.approx(2, rel=0.01)
    (of_pairs,) = own_cache.iterdir()  # both halves are pairs of this host

    def whole(group: tersum.Communicator) -> None:
        group.tune()

    run_group(2, whole)
    assert list(own_cache.iterdir()) == [of_pairs], "that met as a pair: the same table"
    run_group(3, whole)
    assert len(list(own_cache.iterdir())) == 2


def test_tuning_tells_latency_and_rate(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> Any:
        before = group.link_speed()
        group.tune(fresh=True)
        return before, group.link_speed()

    (before, found), (_, other) = run_group(2, body)
    assert before is None and found == other
    if found is not None:  # None where noise had a longer array take no more time
        assert found.bytes_per_second > 1e6 and 0 <= found.latency_seconds < 1


def test_parts_of_a_group_keep_its_rules(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> Any:
        half = group.split(group.rank // 2)
        assert half is not None
        return half.choose("all_reduce", 5000, max_rel_error=0.9)[:2]

    rules = "all_reduce:0-inf:int4/64:one_shot"
    assert run_group(4, body, tuning_rules=rules) == [("int4/64", "one_shot")] * 4


def test_without_a_cache_folder_nothing_is_written(
    run_group: Run, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERSUM_CACHE_DIR", "")
    run_group(2, lambda group: group.tune())
    assert not own_cache.exists()


def test_rules_fill_in_what_calls_leave_open(
    run_group: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERSUM_TUNE", "all_reduce:0-inf:int4/64:ring")

    def body(group: tersum.Communicator) -> Any:
        x = np.ones(5000, np.float32)
        before = group.stats().wire_bytes_sent
        group.all_reduce(x, codec="auto", max_rel_error=0.9)
        sent = group.stats().wire_bytes_sent - before
        return group.choose("all_reduce", x.size, max_rel_error=0.9)[:2], sent

    for choice, sent in run_group(2, body):
        assert choice == ("int4/64", "ring")
        assert sent < 5000  # 5000 values in 4.25 bits, once each way


def test_a_rules_plan_does_not_lift_the_allowed_error(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> Any:
        ring = group.error_bound(count=5000, absmax=1, plan="ring") / group.size
        # An open plan may be the rule's.
        assert group.error_bound(count=5000, absmax=1) / group.size == ring
        chosen = []
        for allowed in (1.01 * ring, 0.99 * ring):
            choice = group.choose("all_reduce", 5000, codec="int8/128", max_rel_error=allowed)
            x = np.full(5000, group.rank + 1, np.float32)
            out = group.all_reduce(x, codec="int8/128", max_rel_error=allowed)
            assert np.allclose(out, 10, rtol=0.1)
            chosen.append((choice.plan, choice.reason))
        return chosen

    for taken, passed in run_group(4, body, tuning_rules="all_reduce:0-inf:*:ring"):
        assert taken == ("ring", "the plan is a tuning rule's")
        assert passed[0] != "ring"
        assert passed[1].startswith("a tuning rule's plan ring is passed over: codec int8/128 ")


def test_rules_must_be_readable_and_the_same_everywhere(run_group: Run) -> None:
    with pytest.raises(tersum.InvalidArgumentError, match="'all_sum' is no collective"):
        run_group(2, lambda group: None, tuning_rules="all_sum:0-1k:exact:*")


def test_rules_that_differ_name_both_ranks_and_both_rules(ranks: Any) -> None:
    ranks.start(
        3,
        """
        rules = "all_reduce:0-inf:int8:ring" if rank == 2 else "all_reduce:0-64k:exact:*"
        os.environ["TERSUM_TUNE"] = rules
        try:
            tersum.Communicator(rank, size, store)
        except tersum.DisagreementError as error:
            say(error)
        """,
    )
    for rank in range(3):
        status, out, err = ranks.finish(rank)
        assert status == 0, err
        assert "disagree on tuning_rules" in out and out.rstrip().endswith("on every rank"), out
        for other, rules in (
            (2, "all_reduce:0-inf:int8:ring"),
            (rank if rank < 2 else 0, "all_reduce:0-64k:exact:*"),
        ):
            assert f"rank {other} has {rules}" in out


SLICES = "; set it to a number from 4096 to 2097152, or leave it out"
STREAMS = "; set it to a number from 1 to 16, or leave it out"


@pytest.mark.parametrize(
    ("name", "values", "remedy"),
    [
        ("TERSUM_SLICE_BYTES", ("4095", "2097153", "64k", "-1", " 8192", "9" * 30), SLICES),
        ("TERSUM_STREAMS", ("0", "17", "two", "-1", "1.5"), STREAMS),
    ],
)
def test_numbers_of_the_environment_are_obeyed_or_refused(
    name: str, values: tuple[str, ...], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in values:
        monkeypatch.setenv(name, value)
        with pytest.raises(tersum.InvalidArgumentError) as raised:
            tersum.Communicator(0, 1)
        assert str(raised.value) == f"{name} is '{value}'{remedy}"
    monkeypatch.setenv(name, "")
    tersum.Communicator(0, 1).close()


@pytest.mark.parametrize(("named", "shown"), [(16384, "16384"), (0, "the default")])
def test_slices_of_the_environment_come_before_the_programs(
    ranks: Any, named: int, shown: str
) -> None:
    ranks.start(
        2,
        f"""
        os.environ["TERSUM_SLICE_BYTES"] = "8192" if rank == 0 else ""
        try:
            tersum.Communicator(rank, size, store, slice_bytes={named})
        except tersum.DisagreementError as error:
            say(error)
        """,
    )
    for rank in range(2):
        status, out, err = ranks.finish(rank)
        assert status == 0, err
        for own, value in ((0, "8192"), (1, shown)):
            assert f"rank {own} has {value}" in out
        assert "disagree on slice_bytes" in out


def test_streams_of_the_environment_come_before_the_programs(ranks: Any) -> None:
    ranks.start(
        2,
        """
        def sockets():
            links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            return sum(os.readlink(link).startswith("socket:") for link in links
                       if os.path.islink(link))
        counts = []
        for streams in ("", "5"):
            os.environ["TERSUM_STREAMS"] = streams
            with tersum.Communicator(rank, size, store, name="s" + streams, transport="tcp",
                                     streams=2) as group:
                total = group.all_reduce(np.ones(100_000, np.float32), codec="exact")
                assert float(total[-1]) == 2
                counts.append(sockets())
                group.barrier()  # none leaves while another one counts
            del group  # with it the process's engine, whose streams are its first group's
        say(counts[1] - counts[0])
        """,
    )
    for rank in range(2):
        status, out, err = ranks.finish(rank)
        assert status == 0, err
        assert out.strip() == "3"


@pytest.mark.parametrize("error", [-1.0, float("nan"), float("inf")])
def test_bad_errors(run_group: Run, error: float) -> None:
    def body(group: tersum.Communicator) -> None:
        with pytest.raises(tersum.InvalidArgumentError, match="max_rel_error"):
            group.all_reduce(np.ones(10, np.float32), max_rel_error=error)

    run_group(2, body)


def test_a_named_codec_that_may_be_too_wrong(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        with pytest.raises(tersum.InvalidArgumentError, match="int4 may be wrong by"):
            group.all_reduce(np.ones(10, np.float32), codec="int4", max_rel_error=0.01)
        group.all_reduce(np.ones(10, np.float32), codec="int8", max_rel_error=0.1)

    run_group(2, body)


def test_a_group_of_one_needs_no_tuning() -> None:
    with tersum.Communicator(0, 1) as group:
        x = np.arange(10, dtype=np.float32)
        assert (group.all_reduce(x, codec="auto") == x).all()
        group.tune()


def test_errors_that_quote_other_bytes_than_text_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environb, b"TERSUM_TUNE", b"all_reduce:\xff\xfe:int8:ring")
    with pytest.raises(tersum.InvalidArgumentError, match="all_reduce:\ufffd\ufffd"):
        tersum.Communicator(0, 1)
