"""tersum.stats(), the Prometheus text as Prometheus's own client reads it, and the HTTP server."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import tersum

_COUNTERS = {
    "tersum_calls_total": "calls",
    "tersum_payload_bytes_total": "payload_bytes",
    "tersum_wire_bytes_sent_total": "wire_bytes_sent",
    "tersum_wire_bytes_received_total": "wire_bytes_received",
    "tersum_wire_bytes_streamed_total": "wire_bytes_streamed",
    "tersum_wire_bytes_placed_total": "wire_bytes_placed",
    "tersum_slices_sent_total": "slices_sent",
}


def _samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample; one name with one set of labels may come once only."""
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type != "unknown", family
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def _work(group: tersum.Communicator) -> None:
    x = np.ones(50_000, np.float32)
    group.all_reduce(x)
    group.all_gather(x)
    with pytest.raises(tersum.DisagreementError):
        group.all_reduce(np.ones(10 + group.rank, np.float32))
    group.barrier()


def test_the_text_holds_what_stats_says(run_group: Callable[..., list[Any]]) -> None:
    run_group(2, _work)
    stats, samples = tersum.stats(), _samples(tersum.metrics_text())
    assert {(call["collective"], call["codec"]) for call in stats["calls"]} >= {
        ("all_reduce", "int8/128"),
        ("all_gather", "exact"),
        ("barrier", "exact"),
    }
    for call in stats["calls"]:
        labels = {("collective", call["collective"]), ("codec", call["codec"])}
        for name, field in _COUNTERS.items():
            assert samples[name, frozenset(labels)] == call[field]  # type: ignore[literal-required]
        durations = "tersum_call_duration_seconds"
        assert samples[durations + "_count", frozenset(labels)] == call["calls"]
        assert samples[durations + "_bucket", frozenset({*labels, ("le", "+Inf")})] == call["calls"]
        assert samples[durations + "_sum", frozenset(labels)] == pytest.approx(call["seconds"])
    failed = {"collective": "all_reduce", "codec": "int8/128", "code": "disagreement"}
    count = next(
        entry["calls"]
        for entry in stats["failures"]
        if {key: value for key, value in entry.items() if key != "calls"} == failed
    )
    assert count >= 2 and samples["tersum_call_failures_total", frozenset(failed.items())] == count


def test_counters_grow_by_what_was_done(run_group: Callable[..., list[Any]]) -> None:
    def totals() -> tuple[int, int]:
        calls = tersum.stats()["calls"]
        return sum(call["calls"] for call in calls), sum(call["payload_bytes"] for call in calls)

    calls, payload_bytes = totals()
    run_group(2, lambda group: group.all_reduce(np.ones(1000, np.float64)))
    assert totals() == (calls + 2, payload_bytes + 2 * 8000)


def test_the_engine_is_seen_while_there_is_one() -> None:
    with tersum.Communicator(0, 1):
        assert tersum.stats()["arena_capacity_bytes"] > 0
        assert ("tersum_backlog_bytes", frozenset()) in _samples(tersum.metrics_text())


def test_the_server_serves_and_closes() -> None:
    with tersum.serve_metrics() as server:
        url = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            samples = _samples(answer.read().decode())
        assert any(name == "tersum_build_info" for name, _ in samples)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/secrets", timeout=10)
        with pytest.raises(tersum.UnavailableError, match="pass another port"):
            tersum.serve_metrics(server.port)
    server.close()  # again
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}/metrics", timeout=10)
    with pytest.raises(tersum.InvalidArgumentError, match="port must be"):
        tersum.serve_metrics(70_000)


def test_a_program_ends_with_a_server_open() -> None:
    script = "import tersum; tersum.serve_metrics(); print('end')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "end\n" and done.stderr == ""


def test_perf_serves_every_ranks_counters() -> None:
    with tersum.serve_metrics() as free:
        port = free.port
    child = subprocess.Popen(
        [sys.executable, "-m", "tersum", "perf", "--metrics-port", str(port), "--iters", "2000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        calls = ("tersum_calls_total", frozenset({("collective", "all_reduce"), _INT8}))
        for rank in range(2):
            assert _wait_for(f"http://127.0.0.1:{port + rank}/metrics", calls) > 0
    finally:
        child.kill()
        child.communicate()


_INT8 = ("codec", "int8/128")


def _wait_for(url: str, wanted: tuple[str, frozenset[tuple[str, str]]]) -> float:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                samples = _samples(answer.read().decode())
        except urllib.error.URLError:
            samples = {}
        if wanted in samples or time.monotonic() > deadline:
            return samples.get(wanted, 0)
        time.sleep(0.05)
