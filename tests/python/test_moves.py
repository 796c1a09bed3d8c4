"""send, recv, gather, scatter and all_to_all from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tersum

Run = Callable[..., list[Any]]


def test_a_ring_of_sends(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        x = np.full((3, 1001), group.rank, np.int64)
        out = np.empty_like(x)
        sent = group.send_async(x, right)
        assert group.recv(out, left) is out
        assert sent.result() is None
        assert (out == left).all()

    run_group(3, body)


def test_blocking_in_turn_and_tags(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        other = 1 - group.rank
        for i in range(5):
            x = np.full(10 + i, i, np.float32)
            if group.rank == i % 2:
                group.send(x, other, tag=i)
            else:
                assert (group.recv(np.empty_like(x), other, tag=i) == i).all()
        if group.rank == 0:
            works = [group.send_async(np.full(4, tag, np.uint8), 1, tag) for tag in (1, 2, 3)]
            for work in works:
                work.wait()
        else:
            outs = {tag: np.empty(4, np.uint8) for tag in (3, 1, 2)}
            gets = [group.recv_async(out, 0, tag) for tag, out in outs.items()]
            for get in gets:
                get.wait()
            assert all((out == tag).all() for tag, out in outs.items())

    run_group(2, body)


def test_lossy_sends_and_strided_outs(run_group: Run) -> None:
    x = np.random.default_rng(5).standard_normal(5000).astype(np.float32)

    def body(group: tersum.Communicator) -> None:
        if group.rank == 0:
            mine = x.copy()
            group.send(mine, 1, codec="int8/32")
            assert (mine == x).all()
        else:
            out = np.zeros((5000, 2), np.float32)[:, 1]
            group.recv(out, 0, codec="int8/32")
            bound = tersum.codec_error_bound("int8/32", float(np.abs(x).max()))
            assert 0 < np.abs(out - x).max() <= bound

    run_group(2, body)


def test_torch_pipeline(run_group: Run) -> None:
    torch = pytest.importorskip("torch")

    def body(group: tersum.Communicator) -> None:
        activations = torch.zeros(7, 9, dtype=torch.bfloat16)
        if group.rank > 0:
            group.recv(activations, group.rank - 1)
        activations += 1
        if group.rank + 1 < group.size:
            group.send(activations, group.rank + 1)
        assert bool((activations == group.rank + 1).all())

    run_group(3, body)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gather_scatter_all_to_all(run_group: Run, size: int) -> None:
    def body(group: tersum.Communicator) -> None:
        root = group.size - 1
        x = np.full((2, 3), group.rank, np.int32)
        gathered = group.gather(x, root)
        if group.rank == root:
            assert gathered is not None and gathered.shape == (2 * group.size, 3)
            assert (gathered == np.repeat(np.arange(group.size), 2)[:, None]).all()
        else:
            assert gathered is None
        every = np.repeat(np.arange(group.size, dtype=np.float32), 5) + 10 * group.rank
        part = group.scatter(every, root)
        assert part.shape == (5,) and (part == group.rank + 10 * root).all()
        swapped = group.all_to_all(every)
        assert (
            swapped.reshape(group.size, 5) == 10 * np.arange(group.size)[:, None] + group.rank
        ).all()
        work = group.all_to_all_async(every)
        assert (work.result() == swapped).all()

    run_group(size, body)


def test_bad_input_starts_nothing(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        x = np.ones(3, np.float32)
        for bad in (lambda: group.send(x, group.rank), lambda: group.recv(x, 2)):
            with pytest.raises(tersum.InvalidArgumentError, match="pass another rank"):
                bad()
        with pytest.raises(tersum.InvalidArgumentError, match="tag -1"):
            group.send(x, 1 - group.rank, tag=-1)
        readonly = x.copy()
        readonly.flags.writeable = False
        with pytest.raises(tersum.InvalidArgumentError, match="read-only"):
            group.recv(readonly, 1 - group.rank)
        with pytest.raises(tersum.InvalidArgumentError, match="multiple of 2"):
            group.all_to_all(x)
        with pytest.raises(tersum.InvalidArgumentError, match="multiple of 2"):
            group.scatter(x, 0)
        with pytest.raises(tersum.InvalidArgumentError, match="root must be"):
            group.gather(x, 2)
        group.barrier()

    run_group(2, body)


def test_ends_that_disagree(run_group: Run) -> None:
    def body(group: tersum.Communicator) -> None:
        with pytest.raises(tersum.DisagreementError, match="data type"):
            if group.rank == 0:
                group.send(np.ones(4, np.float32), 1)
            else:
                group.recv(np.ones(4, np.int32), 0)
        group.barrier()

    run_group(2, body)
