"""Installing and uninstalling leaves no thread and no descriptor behind."""

from __future__ import annotations

import re

from jax_launch import run_jax, skip_without_jax

skip_without_jax()


def counts(output: str, word: str) -> tuple[int, int]:
    found = re.search(rf"^{word}: (\d+) (\d+)$", output, re.MULTILINE)
    assert found, output
    return int(found[1]), int(found[2])


def test_twenty_installations_leave_no_thread_and_no_descriptor() -> None:
    for output in run_jax("leak_checks.py", count=2, devices=2, timeout_s=180):
        threads_before, descriptors_before = counts(output, "before")
        threads, descriptors = counts(output, "after")
        assert threads <= threads_before, output
        assert descriptors <= descriptors_before, output
