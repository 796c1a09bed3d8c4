"""``tersum perf --link``: rows of a shaped link, and who may make one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tersum.cli import main, shaped_link

sys.path.insert(0, str(Path(__file__).resolve().parent))

from perf_runs import COLUMNS, SMALL, perf, rows_of

needs_links = pytest.mark.skipif(
    shaped_link.unavailable_reason() is not None,
    reason=f"no shaped links: {shaped_link.unavailable_reason()}",
)


@needs_links
def test_link_rows_have_the_wire_bound(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    done = perf(
        *("--link", "200mbit", "--codec", "bf16,int8", "--json", str(path), "--iters", "3"),
        *("--min-bytes", "1M", "--max-bytes", "1M", "--warmup", "1"),
    )
    assert done.returncode == 0, done.stderr
    for row in rows_of(path):
        assert list(row)[:-1] == [*COLUMNS[:-1], "link_bits_per_s", "wire_bound_us", "wire_ratio"]
        assert list(row)[-1] == COLUMNS[-1]
        assert row["link_bits_per_s"] == 200_000_000
        bound = row["wire_bytes"] * 8 * 1514 / 1448 / 200e6 * 1e6
        assert row["wire_bound_us"] == pytest.approx(bound)
        # The wire was really used: not faster than the link (less the bucket), not much slower.
        bucket_us = 73_728 * 8 / 200
        assert row["time_us"] > bound - bucket_us
        assert row["wire_ratio"] < 2
        assert row["predicted_us"] == pytest.approx(bound, rel=0.1)


@needs_links
def test_int8_is_nearly_twice_as_fast_as_bf16_on_a_link(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    tries: list[tuple[float, float]] = []
    # 4 MiB of float32 are 88 ms of this wire as bf16 and 45 ms as int8; 1.97 by the bits. A machine
    # that is busy elsewhere slows some calls and not others: the best of three tries counts, and of
    # one the fastest call against the wire.
    for _ in range(3):
        done = perf(
            *("--link", "200mbit", "--codec", "bf16,int8", "--json", str(path), "--iters", "7"),
            *("--min-bytes", "4M", "--max-bytes", "4M", "--warmup", "2"),
        )
        assert done.returncode == 0, done.stderr
        bf16, int8 = rows_of(path)
        assert (bf16["codec"], int8["codec"]) == ("bf16", "int8/128")
        fastest = int8["time_us_min"] / int8["wire_bound_us"]
        tries.append((bf16["time_us"] / int8["time_us"], fastest))
        if tries[-1][0] >= 1.85 and tries[-1][1] <= 1.1:
            return
    pytest.fail(f"times of bf16 over int8, and int8's over its wire's: {tries}")


def test_link_without_root_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["perf", "--link", "1gbit", *SMALL]) == 1
    assert "run as root" in capsys.readouterr().err
