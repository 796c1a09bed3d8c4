"""Groups over two hosts, two ranks each, without a topology: what a host's ranks have crosses once.

The hosts are network namespaces on one shaped veth, whose counters say what crossed it.
"""

from __future__ import annotations

import json
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
needs_links = pytest.mark.skipif(REASON is not None, reason=f"no shaped links: {REASON}")

CALLS = 4
ARRAY_BYTES = 2 << 20
RANK = f"""
import json, sys
import numpy as np
import tersum

def sent():
    for line in open("/proc/self/net/dev"):
        name, _, counters = line.partition(":")
        if name.strip() == "tersum0":
            return int(counters.split()[8])
    raise AssertionError("no tersum0")

rank, store = int(sys.argv[1]), sys.argv[2]
group = tersum.Communicator(rank, 4, store, timeout_ms=60_000)
values = np.full({ARRAY_BYTES // 4}, rank + 1, dtype=np.float32)
crossed = {{}}
for plan in ("auto", "two_step", "hierarchical"):
    group.barrier()
    before = sent()
    for _ in range({CALLS}):
        total = group.all_reduce(values, codec="exact", plan=plan)
        assert (total == 10).all()
    group.barrier()
    crossed[plan] = sent() - before
part = group.split(0 if rank < 3 else 1, -rank)
total = part.all_reduce(values, codec="exact")
print(json.dumps([group.hosts, part.hosts, float(total[0]), crossed]))
part.close()
group.close()
"""


def run_ranks(link: ShapedLink) -> list[Any]:
    """What each rank printed; ranks 0 and 2 are on the first host, 1 and 3 on the second."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tersum.__file__).parent.parent)}
    store = f"tcp://{link.addresses[0]}:29500"
    ranks = []
    for rank in range(4):
        argv = [sys.executable, "-c", RANK, str(rank), store]
        kwargs: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "env": environment}
        ranks.append(link.popen(rank % 2, argv, **kwargs))
    printed = []
    for child in ranks:
        out, _ = child.communicate(timeout=90)
        assert child.returncode == 0
        printed.append(json.loads(out))
    return printed


@needs_links
def test_ranks_of_a_host_share_its_wire() -> None:
    with ShapedLink(rate="1gbit") as link:
        printed = run_ranks(link)
    for rank, (hosts, part_hosts, part_sum, _) in enumerate(printed):
        assert hosts == [0, 1, 0, 1]
        # The part has its ranks in the other order: 2, 1, 0.
        assert part_hosts == ([0, 1, 0] if rank < 3 else [0])
        assert part_sum == (6 if rank < 3 else 4)
    for rank in (0, 1):
        crossed = printed[rank][3]
        # Each way half of the sums, and half of the results: one array a call, and what frames add.
        assert crossed["auto"] < 1.15 * CALLS * ARRAY_BYTES
        assert crossed["auto"] == pytest.approx(crossed["hierarchical"], rel=0.1)
        assert crossed["two_step"] > 1.4 * crossed["auto"]


def test_one_rank_is_a_host_of_its_own() -> None:
    with tersum.Communicator(0, 1) as group:
        assert group.hosts == (0,)
