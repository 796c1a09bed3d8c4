"""A short call that waits beside a long one in the background: it comes back when it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tersum
from tersum.cli import shaped_link
from tersum.cli.shaped_link import ShapedLink

REASON = shaped_link.unavailable_reason()

# The long call is 64 MiB, some 90 times what a short one sends. Whoever waits for one of those used
# to drive on until nothing more of the long one was left to leave, and what the kernel had taken of
# it, up to 4 MB, went first: the third ended behind it.
RANK = """
import sys
import numpy as np
import tersum
with tersum.Communicator(int(sys.argv[1]), 2, sys.argv[2], transport="tcp") as group:
    large, small = np.ones(1 << 24, np.float32), np.ones(1 << 17, np.float32)
    for _ in range(2):
        group.barrier()
        work = group.all_reduce_async(large, codec="int8", out=np.empty_like(large))
        for _ in range(3):
            short = group.all_reduce(small, codec="int8", out=np.empty_like(small))
            assert (abs(short - 2) < 0.02).all()
        beside = not work.done()
        assert (abs(work.result() - 2) < 0.02).all()
    print(beside)
"""


@pytest.mark.skipif(REASON is not None, reason=f"no shaped links: {REASON}")
def test_short_calls_end_beside_a_long_one() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(tersum.__file__).parent.parent)}
    with ShapedLink(rate="200mbit") as link:
        store = f"tcp://{link.addresses[0]}:29500"
        kwargs: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "env": environment}
        ranks = [
            link.popen(rank, [sys.executable, "-c", RANK, str(rank), store], **kwargs)
            for rank in range(2)
        ]
        for child in ranks:
            out, _ = child.communicate(timeout=90)
            assert child.returncode == 0
            assert out == "True\n"
