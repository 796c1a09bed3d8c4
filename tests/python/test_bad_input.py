"""Wrong calls: an exact message that says what to do, inputs intact, the communicator usable."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

ONES = np.ones(4, np.float32)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


CASES: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("list", {"x": [1.0]}, tersum.InvalidArgumentError, "got list: wrap it in numpy.asarray"),
    ("scalar", {"x": 1.0}, tersum.InvalidArgumentError, "got float: wrap it in numpy.asarray"),
    ("bool", {"x": ONES > 0}, tersum.UnsupportedError, "x has dtype bool"),
    ("complex", {"x": ONES * 1j}, tersum.UnsupportedError, "x has dtype complex64"),
    ("object", {"x": np.array([None])}, tersum.UnsupportedError, "x has dtype object"),
    ("uint16", {"x": ONES.astype(np.uint16)}, tersum.UnsupportedError, "convert it to one of"),
    ("big endian", {"x": ONES.astype(">f4")}, tersum.UnsupportedError, "foreign byte order"),
    (
        "masked",
        {"x": np.ma.masked_array(ONES, [1, 0, 0, 0])},
        tersum.InvalidArgumentError,
        "x.filled(0)",
    ),
    ("op", {"op": "prod"}, tersum.InvalidArgumentError, "use one of sum, avg, max, min"),
    ("plan", {"plan": "bush"}, tersum.InvalidArgumentError, "auto, two_step, ring, one_shot"),
    ("codec", {"codec": "int9"}, tersum.InvalidArgumentError, "int9"),
    ("block", {"codec": "int8/48"}, tersum.InvalidArgumentError, "48"),
    ("timeout", {"timeout_ms": 0}, tersum.InvalidArgumentError, "timeout_ms must be 1 or more"),
    (
        "read-only out",
        {"out": read_only(np.zeros(4, np.float32))},
        tersum.InvalidArgumentError,
        "out is read-only",
    ),
    (
        "out's shape",
        {"out": np.zeros(5, np.float32)},
        tersum.InvalidArgumentError,
        "out has shape (5,), the result has (4,)",
    ),
    (
        "out's dtype",
        {"out": np.zeros(4, np.float64)},
        tersum.InvalidArgumentError,
        "out has dtype float64, the result has float32",
    ),
    ("out's kind", {"out": [0.0] * 4}, tersum.InvalidArgumentError, "out must be a NumPy array"),
]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_wrong_call_is_refused_and_harms_nothing(
    run_group: Any, arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    def body(group: tersum.Communicator) -> Any:
        with pytest.raises(kind, match=re.escape(words)) as caught:
            group.all_reduce(**{"x": ONES, **arguments})
        assert isinstance(caught.value, tersum.TersumError)
        return group.all_reduce(ONES, codec="exact")

    for result in run_group(2, body):
        np.testing.assert_array_equal(result, 2.0)
    np.testing.assert_array_equal(ONES, 1.0)


def test_reduce_scatter_names_the_multiple(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> None:
        with pytest.raises(tersum.InvalidArgumentError, match=r"multiple of 2, got shape \(5,\)"):
            group.reduce_scatter(np.ones(5, np.float32))
        with pytest.raises(tersum.InvalidArgumentError, match="pad it"):
            group.reduce_scatter(np.asarray(1.0))

    run_group(2, body)


def test_root_out_of_range(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> None:
        with pytest.raises(tersum.InvalidArgumentError, match="root must be 0 to 1, got 2"):
            group.broadcast(ONES, 2)

    run_group(2, body)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 2, "size": 2}, "rank must be 0 to 1 in a group of 2, got 2"),
        ({"rank": -1, "size": 2}, "got -1"),
        ({"rank": 0, "size": 0}, "size must be at least 1"),
        ({"rank": 0, "size": 2}, "needs store="),
        ({"rank": 0, "size": 1, "store": 7}, "got int"),
        ({"rank": 0, "size": 1, "store": "udp://x"}, "udp://x"),
        ({"rank": 0, "size": 1, "port": 70_000}, "0 (any free one) to 65535, got 70000"),
        ({"rank": 0, "size": 1, "transport": "rdma"}, "auto, tcp, shm"),
        ({"rank": 0, "size": 1, "streams": -1}, "streams must be 0"),
        ({"rank": 0, "size": 1, "timeout_ms": 0}, "timeout_ms must be 1 or more"),
    ],
)
def test_bad_construction(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(tersum.InvalidArgumentError, match=re.escape(words)):
        tersum.Communicator(**arguments)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(tersum.UnavailableError, match=str(port)):
            tersum.Communicator(0, 2, f"tcp://127.0.0.1:{port}", timeout_ms=2_000)


def test_disagreement_names_both_and_leaves_the_group_usable(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> Any:
        count = 100 if group.rank == 0 else 101
        with pytest.raises(tersum.DisagreementError) as caught:
            group.all_reduce(np.ones(count, np.float32))
        text = str(caught.value)
        assert "100" in text and "101" in text and "rank 0" in text and "rank 1" in text
        return group.all_reduce(ONES, codec="exact")

    for result in run_group(2, body):
        np.testing.assert_array_equal(result, 2.0)


def reduce(group: tersum.Communicator, **arguments: Any) -> Any:
    return group.all_reduce(**{"x": np.ones(64, np.float32), **arguments})


# What differs, how rank 0 and rank 1 call, and what each of them is said to have.
DISAGREEMENTS: list[tuple[str, Callable[..., Any], Callable[..., Any], str, str]] = [
    (
        "the length",
        lambda group: reduce(group, x=np.ones(64, np.float32)),
        lambda group: reduce(group, x=np.ones(65, np.float32)),
        "64 elements",
        "65 elements",
    ),
    (
        "the data type",
        lambda group: reduce(group, codec="exact"),
        lambda group: reduce(group, codec="exact", x=np.ones(64, np.float64)),
        "float32",
        "float64",
    ),
    (
        "the operation",
        lambda group: reduce(group, op="sum"),
        lambda group: reduce(group, op="avg"),
        "sum",
        "avg",
    ),
    (
        "the codec",
        lambda group: reduce(group, codec="int8/128"),
        lambda group: reduce(group, codec="int4/32"),
        "int8/128",
        "int4/32",
    ),
    (
        "the codec",
        lambda group: reduce(group, codec="int8/128"),
        lambda group: reduce(group, codec="int8/64"),
        "int8/128",
        "int8/64",
    ),
    (
        "the plan",
        lambda group: reduce(group, plan="ring"),
        lambda group: reduce(group, plan="two_step"),
        "ring",
        "two_step",
    ),
    (
        "the collective",
        reduce,
        lambda group: group.barrier(),
        "all_reduce",
        "barrier",
    ),
    (
        "the root",
        lambda group: group.broadcast(ONES, 0),
        lambda group: group.broadcast(ONES, 1),
        "rank 0",
        "rank 1",
    ),
]


@pytest.mark.parametrize(
    ("what", "first", "second", "value_0", "value_1"),
    DISAGREEMENTS,
    ids=[f"{case[0].removeprefix('the ')}-{case[4]}" for case in DISAGREEMENTS],
)
def test_every_kind_of_disagreement(
    run_group: Any,
    what: str,
    first: Callable[..., Any],
    second: Callable[..., Any],
    value_0: str,
    value_1: str,
) -> None:
    def body(group: tersum.Communicator) -> Any:
        with pytest.raises(tersum.DisagreementError) as caught:
            (first, second)[group.rank](group)
        assert str(caught.value).startswith(
            f"ranks disagree on {what}: rank 0 has {value_0}, rank 1 has {value_1}; "
        )
        return group.all_reduce(ONES, codec="exact")

    for result in run_group(2, body):
        np.testing.assert_array_equal(result, 2.0)


def test_deadlines_may_differ(run_group: Any) -> None:
    """How long a rank is willing to wait is its own affair."""

    def body(group: tersum.Communicator) -> Any:
        return group.all_reduce(ONES, codec="exact", timeout_ms=10_000 + group.rank)

    for result in run_group(2, body):
        np.testing.assert_array_equal(result, 2.0)


@pytest.mark.parametrize("transport", ["auto", "tcp", "shm"])
def test_who_was_not_in_the_call_hears_of_a_disagreement_at_its_next(
    run_group: Any, transport: str
) -> None:
    failed = threading.Barrier(3, timeout=20)

    def body(group: tersum.Communicator) -> Any:
        if group.rank == 2:
            failed.wait()  # the others have their error by now
        began = time.monotonic()
        with pytest.raises(tersum.DisagreementError) as caught:
            group.all_reduce(ONES, codec="exact" if group.rank == 0 else "int8/32")
        assert time.monotonic() - began < 10  # the deadline is 20 s
        if group.rank != 2:
            failed.wait()
        # Rank 2 may compare its own call first, which differs from rank 0's as well.
        other = "[12]" if group.rank == 2 else "1"
        assert re.search(f"codec: rank 0 has exact, rank {other} has int8/32;", str(caught.value))
        return group.all_reduce(ONES, codec="exact")

    for result in run_group(3, body, transport=transport):
        np.testing.assert_array_equal(result, 3.0)


def test_a_late_rank_is_named_at_the_deadline(run_group: Any) -> None:
    waited = threading.Event()

    def body(group: tersum.Communicator) -> None:
        if group.rank == 1:
            waited.wait(20)
            return
        with pytest.raises(tersum.TimeoutError, match="rank 1") as caught:
            group.all_reduce(ONES, timeout_ms=300)
        assert isinstance(caught.value, TimeoutError) and caught.value.is_retryable
        with pytest.raises(tersum.TimeoutError):  # poisoned: the first cause again
            group.all_reduce(ONES)
        waited.set()

    run_group(2, body)


def test_joining_times_out_and_names_who_is_missing(tmp_path: Path) -> None:
    with pytest.raises(tersum.TimeoutError, match="1"):
        tersum.Communicator(0, 2, f"file://{tmp_path}/store", timeout_ms=300)


def test_calls_after_close_say_so() -> None:
    group = tersum.Communicator(0, 1)
    group.close()
    group.close()
    with pytest.raises(tersum.ClosedError):
        group.all_reduce(ONES)


def test_abort_reaches_every_rank(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> None:
        if group.rank == 0:
            group.abort("the test says so")
        with pytest.raises(tersum.AbortedError, match="the test says so"):
            for _ in range(1000):
                group.all_reduce(ONES)
                group.barrier()

    run_group(3, body)


def test_a_rank_that_raises_inside_with_ends_the_others_calls(run_group: Any) -> None:
    heard: list[tuple[int, tersum.TersumError, float]] = []

    def body(group: tersum.Communicator) -> None:
        group.barrier()
        if group.rank == 1:
            raise RuntimeError("the test's")
        began = time.monotonic()
        with pytest.raises(tersum.TersumError) as caught:
            group.all_reduce(ONES)
        heard.append((group.rank, caught.value, time.monotonic() - began))

    with pytest.raises(RuntimeError, match="the test's"):
        run_group(3, body)
    assert sorted(rank for rank, _, _ in heard) == [0, 2]
    for _, error, seconds in heard:
        assert "rank 1" in str(error) and error.is_retryable
        assert seconds < 10  # the deadline is 20 s


def test_every_status_code_has_its_class() -> None:
    from tersum.errors import error_from_status

    for code in tersum.StatusCode:
        if code is tersum.StatusCode.OK:
            continue
        error = error_from_status(code, "words")
        assert type(error).__name__ != "TersumError"
        assert error.code == code and str(error) == "words"
    assert isinstance(error_from_status(99, "x"), tersum.InternalError)
