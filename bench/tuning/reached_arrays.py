#!/usr/bin/env python3
"""What does it gain that ranks of one host touch each other's arrays? With and without, in turns.

    python3 bench/tuning/reached_arrays.py [--ranks 2,4,8] [--sizes 1M,4M,16M] [--apart]
        [--rounds 6] [--groups 3]

Groups of processes (``build/peers/tersum_all_reduce``, made by ``scripts/bench --peers``), one with
``TERSUM_SHM_REACH=auto`` and one with ``off``, sum float32 exactly in shared memory, in place or,
with ``--apart``, elsewhere, a batch of calls each in turn. Where its pages lie makes a group
faster or slower for its life, so that several are made of each. Prints medians of a call in
microseconds, and with's over without's of each pair of groups.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from pathlib import Path

from tersum.cli.byte_sizes import format_bytes, parse_bytes
from tersum.cli.perf_binding import cpus_by_rank
from tersum.cli.perf_peers import DEFAULT_FOLDER, PEERS, Job, PeerJob, Start

FOLDER = Path(__file__).resolve().parents[2] / DEFAULT_FOLDER
TIMEOUT_S = 60
BATCHES = 3
#: Of one batch, all ranks together.
BATCH_BYTES = 80 << 20


def start_group(ranks: int, policy: str) -> PeerJob:
    """Ranks that touch each other's arrays as ``policy`` says, on CPUs as ``tersum perf``'s."""
    peer = PEERS["tersum-c++"]

    def starts(job: Job) -> list[Start]:
        return [
            Start(start.argv, {**start.environment, "TERSUM_SHM_REACH": policy})
            for start in peer.starts(job)
        ]

    of_policy = peer._replace(starts=starts)
    return PeerJob(of_policy, FOLDER, ranks, "shm", "exact", TIMEOUT_S, cpus_by_rank(ranks))


def medians_us(ranks: int, size: int, in_place: bool, rounds: int) -> tuple[float, float]:
    """With and without, of two groups that take turns."""
    calls = max(2, BATCH_BYTES // max(size, 64 << 10) // ranks)
    times: list[list[float]] = [[], []]
    with contextlib.ExitStack() as stack:
        groups = [start_group(ranks, "auto"), start_group(ranks, "off")]
        for group in groups:
            stack.callback(group.close)
        for number in range(rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                order = f"time {size // 4} {BATCHES} {calls} {int(in_place)}"
                times[which] += [float(word) * 1e6 for word in groups[which].ask(order)]
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--sizes", default="256K,1M,4M,16M,64M")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--groups", type=int, default=3)
    options = parser.parse_args()
    program = FOLDER / PEERS["tersum-c++"].program
    if not program.exists():
        print(f"there is no {program}; make it with scripts/bench --peers", file=sys.stderr)
        return 1
    print("ranks   bytes   reached      sent  reached/sent")
    for ranks in map(int, options.ranks.split(",")):
        for size in map(parse_bytes, options.sizes.split(",")):
            pairs = [
                medians_us(ranks, size, not options.apart, options.rounds)
                for _ in range(options.groups)
            ]
            reached, sent = (statistics.median(times) for times in zip(*pairs, strict=True))
            ratios = ", ".join(f"{with_us / without_us:.2f}" for with_us, without_us in pairs)
            name = format_bytes(size)
            print(f"{ranks:5} {name:>7} {reached:9.0f} {sent:9.0f}  {ratios}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
