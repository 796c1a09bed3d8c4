"""The demo's arithmetic on made-up measurements, and the whole demo in small over loopback."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "minilm_demo"))

import demo_report

EXAMPLE = Path(demo_report.__file__).parent
SEED = 7_384


def measured(wire: str, batch: float, psum: float, digest: str = "same") -> dict[str, Any]:
    return {
        "link": "1gbit",
        "wire": wire,
        "batch_seconds": [batch, 3 * batch, batch],
        "compute_seconds": [0.2, 0.2, 0.9],
        "psum_seconds": [psum] * 3,
        "interface_bytes": [1000, 1000, 1000],
        "payload_bytes": [],
        "collective_seconds": [],
        "embedding_digest": digest,
    }


def row(wire: str, batch: float, psum: float) -> demo_report.Row:
    ranks = [measured(wire, batch, psum), measured(wire, 0.9 * batch, psum)]
    return demo_report.make_row(ranks, bits_per_s=1e9, burst_bytes=125_000)


def test_share_and_prediction_come_from_the_slower_rank_and_the_bucket() -> None:
    found = row("bf16", batch=0.5, psum=0.026)
    assert found.batch_seconds == 0.5
    assert found.share == pytest.approx(0.6)
    # The bucket is 125,000 bytes, a millisecond at 1 Gbit/s, and it helps each of 12 all-reduces.
    assert found.predicted_seconds == pytest.approx(0.2 + 12 * 0.025)


def test_checks_say_no_to_a_slow_int8_wire() -> None:
    bf16 = row("bf16", batch=0.5, psum=0.026)
    fast, slow = row("int8/128", 0.35, 0.0135), row("int8/128", 0.45, 0.0135)
    assert [held for held, _ in demo_report.all_speed_checks([bf16, fast])] == [True, True]
    assert [held for held, _ in demo_report.all_speed_checks([bf16, slow])] == [False, False]
    assert [held for held, _ in demo_report.quality_checks([bf16, slow], [])] == [True]


def test_checks_say_no_to_ranks_that_differ() -> None:
    ranks = [measured("exact", 0.5, 0.02), measured("exact", 0.5, 0.02, digest="other")]
    (verdict,) = demo_report.quality_checks([demo_report.make_row(ranks, 0, 0)], [])
    assert not verdict[0]


@pytest.mark.parametrize(
    ("wire", "cosine", "held"),
    [
        ("int8/128", 0.99971, True),
        ("int8/128", 0.99969, False),
        ("int8/32", 0.99991, True),
        ("int8/32", 0.99989, False),
    ],
)
def test_a_missed_cosine_is_the_exit_status_even_unasked(
    wire: str, cosine: float, held: bool
) -> None:
    found = demo_report.Quality(wire, 32, cosine, 0.99, 20, 0)
    quality = demo_report.quality_checks([row("bf16", 0.5, 0.026)], [found])
    assert [verdict for verdict, _ in quality] == [True, held]
    for check_speed in (False, True):
        assert demo_report.exit_status(quality, [], check_speed) == (0 if held else 1)


def test_a_missed_speed_is_the_exit_status_only_when_asked() -> None:
    speed = demo_report.all_speed_checks([row("bf16", 0.5, 0.026), row("int8/128", 0.45, 0.0135)])
    assert not all(held for held, _ in speed)
    assert demo_report.exit_status([(True, "")], speed, False) == 0
    assert demo_report.exit_status([(True, "")], speed, True) == 1


def test_different_bits_are_the_exit_status_even_unasked() -> None:
    ranks = [measured("exact", 0.5, 0.02), measured("exact", 0.5, 0.02, digest="other")]
    quality = demo_report.quality_checks([demo_report.make_row(ranks, 0, 0)], [])
    assert demo_report.exit_status(quality, [], False) == 1


def test_hits_count_only_above_the_noise_of_bf16() -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    single = rng.standard_normal((40, 384)).astype(np.float32)
    single[1] = single[0] + 0.5 * rng.standard_normal(384)  # a clear neighbour
    single[3] = single[2] + 0.5 * rng.standard_normal(384)
    single[4] = single[3] + 1e-4 * rng.standard_normal(384)  # a tie that any noise may swap
    noisy = {
        "bf16": single + 2e-3 * rng.standard_normal(single.shape),
        "int8/128": single + 1e-2 * rng.standard_normal(single.shape),
        "int4/128": rng.standard_normal(single.shape),
    }
    found = {item.wire: item for item in demo_report.judge_quality(single, noisy)}
    assert found["bf16"].hits_changed == 0
    assert 2 <= found["bf16"].hits_counted < 40
    assert 0.9999 < found["int8/128"].cosine_mean < found["bf16"].cosine_mean < 1
    assert found["int4/128"].hits_changed > found["int4/128"].hits_counted // 2


def have_tersum_jax() -> bool:
    try:
        return importlib.util.find_spec("tersum.jax") is not None
    except ImportError:
        return False


@pytest.mark.skipif(not have_tersum_jax(), reason="tersum is not installed with its JAX part")
def test_the_demo_runs_in_small_over_loopback(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [
            *(sys.executable, str(EXAMPLE / "run.py"), "--loopback", "--out", str(tmp_path)),
            *("--wires", "jax,bf16,int8/128", "--batches", "2", "--texts", "32"),
            *("--batch-size", "16", "--tokens", "64"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    report = json.loads((tmp_path / "demo.json").read_text())
    assert all(line["same_bits"] for line in report["rows"])
    cosines = {line["wire"]: line["cosine_mean"] for line in report["quality"]}
    assert cosines["jax"] > 0.999999
    assert cosines["bf16"] > 0.99999
    assert 0.9995 < cosines["int8/128"] < 0.9999999  # quantized, and not by much
    assert (tmp_path / "demo.png").stat().st_size > 10_000
