"""tersum.capture(): what is written down of a communicator's sums, its limits and its refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum
from tersum._captured_calls import read_capture

SEED = 20261122
RunGroup = Callable[..., list[Any]]


def index_of(directory: Path) -> list[dict[str, Any]]:
    (path,) = directory.glob("*/index.json")
    content = json.loads(path.read_text())
    assert content["format"] == "tersum-capture 1"
    return list(content["calls"])


def values_of(seed: int, rank: int, *shape: int) -> np.ndarray:
    return np.random.default_rng([SEED, seed, rank]).standard_normal(shape).astype(np.float32)


def test_inputs_and_sum_of_every_rank(run_group: RunGroup, tmp_path: Path) -> None:
    def body(group: tersum.Communicator) -> np.ndarray:
        x = values_of(0, group.rank, 6, 32)
        return group.all_reduce(x, codec="int8/32", out=x)

    recording = tersum.capture(tmp_path)
    with recording:
        results = run_group(3, body)
    summary = recording.stop()
    assert (summary.calls, summary.beyond_calls, summary.beyond_bytes) == (3, 0, 0)
    entries = index_of(tmp_path)
    assert sorted(entry["rank"] for entry in entries) == [0, 1, 2]
    for entry in entries:
        assert (entry["collective"], entry["op"], entry["dtype"]) == (
            "all_reduce",
            "sum",
            "float32",
        )
        assert (entry["codec"], entry["plan"]) == ("int8/32", "auto")
        assert (entry["count"], entry["channels"], entry["group"]) == (192, 32, [0, 1, 2])
        assert entry["source"].startswith("test_capture.py:")
        stored = np.load(summary.directory / entry["input"])
        # In place, and yet what was handed in.
        assert stored.tobytes() == values_of(0, entry["rank"], 6, 32).tobytes()
        assert bool(entry["sum"]) == (entry["rank"] == 0)
    (total,) = [entry["sum"] for entry in entries if entry["sum"]]
    assert np.load(summary.directory / total).tobytes() == results[0].tobytes()
    assert sum(path.stat().st_size for path in summary.directory.glob("*.npy")) == (
        summary.file_bytes
    )


def test_calls_are_matched_over_the_ranks(run_group: RunGroup, tmp_path: Path) -> None:
    def body(group: tersum.Communicator) -> None:
        part = group.split(0)
        assert part is not None
        for step in range(3):
            works = [group.all_reduce_async(values_of(step, group.rank, 40)) for _ in range(2)]
            part.reduce_scatter(values_of(10 + step, group.rank, 8, 20))
            for work in works:
                work.result()

    with tersum.capture(tmp_path, calls=4):
        run_group(2, body)
    sites = {site.collective: site for site in read_capture(tmp_path)}
    assert len(sites) == 2
    # Two calls from one line, in three steps: the first four are kept.
    assert [len(sites[name].calls) for name in ("all_reduce", "reduce_scatter")] == [4, 3]
    for step, inputs in enumerate(sites["reduce_scatter"].inputs(2)):
        wanted = [values_of(10 + step, rank, 160) for rank in range(2)]
        assert inputs.tobytes() == np.stack(wanted).tobytes()
    # Four ranks out of two: two calls make one.
    assert [inputs.shape for inputs in sites["all_reduce"].inputs(4)] == [(4, 40), (4, 40)]


def test_each_rank_keeps_its_part_of_a_reduce_scatter(run_group: RunGroup, tmp_path: Path) -> None:
    with tersum.capture(tmp_path) as recording:
        results = run_group(2, lambda group: group.reduce_scatter(values_of(1, group.rank, 4, 8)))
    for entry in index_of(tmp_path):
        stored = np.load(recording.stop().directory / entry["sum"])
        assert stored.tobytes() == results[entry["rank"]].tobytes()


def test_each_tensor_of_a_list_is_a_site(run_group: RunGroup, tmp_path: Path) -> None:
    def tensors(step: int, rank: int) -> list[np.ndarray]:
        lists = [values_of(step, rank, 8, 16), values_of(50 + step, rank, 300)]
        return [*lists, np.arange(5), values_of(90 + step, rank, 300).astype(np.float16)]

    def body(group: tersum.Communicator) -> list[list[np.ndarray]]:
        found = []
        for step in range(3):
            x = tensors(step, group.rank)
            out = x if step == 1 else None
            found.append(group.all_reduce_coalesced(x, codec="int8/32", out=out))
        return found

    plain = run_group(2, body)
    with tersum.capture(tmp_path, calls=2):
        captured = run_group(2, body)
    for lists, others in zip(captured, plain, strict=True):
        for one, other in zip(lists, others, strict=True):
            assert [x.tobytes() for x in one] == [x.tobytes() for x in other]
    sites = read_capture(tmp_path)
    assert sorted(site.dtype for site in sites) == ["float16", "float32", "float32"]
    assert all(len(site.calls) == 2 for site in sites)
    for site in sites:
        index = {(8 * 16, "float32"): 0, (300, "float32"): 1, (300, "float16"): 3}[
            (site.count, site.dtype)
        ]
        for step, inputs in enumerate(site.inputs(2)):
            for rank, values in enumerate(inputs):
                wanted = tensors(step, rank)[index].astype(np.float32).ravel()
                np.testing.assert_array_equal(np.ravel(values), wanted)
    entries = index_of(tmp_path)
    assert {entry["collective"] for entry in entries} == {"all_reduce"}
    assert {entry["site"].partition("[")[2].partition("]")[0] for entry in entries} == {
        *("0", "1", "3")
    }


def test_what_cannot_be_quantized_is_left_out(run_group: RunGroup, tmp_path: Path) -> None:
    def body(group: tersum.Communicator) -> None:
        group.all_reduce(np.arange(8))
        group.all_reduce(np.arange(8.0))
        group.all_reduce(np.ones(8, np.float32), op="max")
        group.all_reduce(np.ones(8, np.float16), op="avg")

    with tersum.capture(tmp_path):
        run_group(2, body)
    assert {(entry["dtype"], entry["op"]) for entry in index_of(tmp_path)} == {("float16", "avg")}


def test_bytes_are_bounded(run_group: RunGroup, tmp_path: Path) -> None:
    def body(group: tersum.Communicator) -> None:
        for _ in range(10):
            group.all_reduce(np.ones(4096, np.float32))

    with tersum.capture(tmp_path, calls=100, max_bytes=200_000) as recording:
        run_group(2, body)
    summary = recording.stop()
    assert summary.beyond_bytes == 20 - summary.calls > 0
    assert summary.file_bytes <= 200_000
    assert sum(path.stat().st_size for path in summary.directory.glob("*.npy")) <= 200_000


def test_nothing_is_recorded_before_and_after(run_group: RunGroup, tmp_path: Path) -> None:
    def body(group: tersum.Communicator) -> None:
        group.all_reduce(np.ones(64, np.float32))

    recording = tersum.capture(tmp_path)
    run_group(2, body)
    recording.start()
    run_group(2, body)
    first = recording.stop()
    run_group(2, body)
    assert recording.stop() == first
    assert first.calls == 2


def test_refusals_name_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(tersum.InvalidArgumentError, match="calls must be 1 or more"):
        tersum.capture(tmp_path, calls=0)
    with pytest.raises(tersum.InvalidArgumentError, match="max_bytes must be 1 or more"):
        tersum.capture(tmp_path, max_bytes=-1)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(tersum.InvalidArgumentError, match="choose a directory that this process"):
        tersum.capture(file / "below").start()
    with pytest.raises(tersum.InvalidArgumentError, match="call start"):
        tersum.capture(tmp_path).stop()
    with tersum.capture(tmp_path / "a") as recording:
        with pytest.raises(tersum.InvalidArgumentError, match="is running in this process: stop"):
            tersum.capture(tmp_path / "b").start()
        with pytest.raises(tersum.InvalidArgumentError, match="make a new one"):
            recording.start()
    with pytest.raises(tersum.InvalidArgumentError, match="holds a capture of this process"):
        tersum.capture(tmp_path / "a").start()


def test_a_disk_that_takes_no_more_is_an_error_at_the_end(
    run_group: RunGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    recording = tersum.capture(tmp_path)
    recording.start()
    with monkeypatch.context() as patched:
        patched.setattr(np, "save", full)
        results = run_group(
            2, lambda group: group.all_reduce(np.ones(8, np.float32), codec="exact")
        )
    assert all((result == 2).all() for result in results)
    with pytest.raises(tersum.SystemCallError, match="No space left on device; make room"):
        recording.stop()
    with tersum.capture(tmp_path / "next"):
        pass
