"""codec="auto" in unmodified programs: in one process, and over two with two devices each."""

from __future__ import annotations

import pytest
from jax_launch import run_jax, skip_without_jax

skip_without_jax()


@pytest.mark.parametrize(("count", "devices"), [(1, 4), (2, 2)])
def test_operations_take_the_cheapest_codec_within_an_error(count: int, devices: int) -> None:
    outputs = run_jax("auto_checks.py", count=count, devices=devices, timeout_s=200)
    digests = {line for out in outputs for line in out.splitlines() if line.startswith("ok ")}
    assert len(digests) == 1
