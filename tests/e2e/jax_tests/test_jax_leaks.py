"""Installing and uninstalling leaves no thread and no descriptor behind."""

from __future__ import annotations

import re

from jax_launch import run_jax, skip_without_jax

skip_without_jax()


DEVICES = 2


def counts(output: str, word: str) -> tuple[int, int, int]:
    found = re.search(rf"^{word}: (\d+) (\d+) (\d+)$", output, re.MULTILINE)
    assert found, output
    return int(found[1]), int(found[2]), int(found[3])


def test_twenty_installations_leave_no_thread_and_no_descriptor() -> None:
    for output in run_jax("leak_checks.py", count=2, devices=DEVICES, timeout_s=180):
        threads_before, descriptors_before, _ = counts(output, "before")
        threads, descriptors, pool = counts(output, "after")
        assert threads <= threads_before, output
        assert descriptors <= descriptors_before, output
        # A device's program ends on one of the pool, and the next may begin to end while that one
        # is on its way back: two a device, where a leak would be one an installation.
        assert 1 <= pool <= 2 * DEVICES, output
