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
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from tersum.cli.byte_sizes import format_bytes, parse_bytes

PROGRAM = Path(__file__).resolve().parents[2] / "build/peers/tersum_all_reduce"
BATCHES = 3
#: Of one batch, all ranks together.
BATCH_BYTES = 80 << 20


class Group:
    """Ranks that wait for commands, on CPUs of their own as far as there are enough."""

    def __init__(self, ranks: int, policy: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        cpus = sorted(os.sched_getaffinity(0))
        lines = [f"{cpus[rank * len(cpus) // ranks]}\n" for rank in range(ranks)]
        (folder / "cpus").write_text("".join(lines))
        names = ["out", "done", *(f"in.{rank}" for rank in range(ranks))]
        for name in names:
            os.mkfifo(folder / name)
        opened = {name: os.open(folder / name, os.O_RDWR) for name in names}
        self._inputs = [opened[f"in.{rank}"] for rank in range(ranks)]
        self._done = opened["done"]
        self._out = os.fdopen(opened["out"], "r")
        self._processes = [
            subprocess.Popen(
                [PROGRAM, folder, str(rank), str(ranks), "shm", "exact"],
                env={**os.environ, "TERSUM_SHM_REACH": policy},
            )
            for rank in range(ranks)
        ]
        self._out.readline()  # that they are ready

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._say("quit")
        for process in self._processes:
            process.wait()
        self._out.close()
        for descriptor in [*self._inputs, self._done]:
            os.close(descriptor)
        self._folder.cleanup()

    def _say(self, command: str) -> None:
        for descriptor in self._inputs:
            os.write(descriptor, f"{command}\n".encode())

    def times_us(self, size: int, calls: int, in_place: bool) -> list[float]:
        """Of a call, over BATCHES batches."""
        self._say(f"time {size // 4} {BATCHES} {calls} {int(in_place)}")
        answer = self._out.readline().split()
        left = len(self._inputs) - 1
        while left > 0:
            left -= len(os.read(self._done, left))
        if not answer or answer[0] != "ok":
            raise RuntimeError(f"rank 0 says {answer}")
        return [float(seconds) * 1e6 for seconds in answer[1:]]


def medians_us(ranks: int, size: int, in_place: bool, rounds: int) -> tuple[float, float]:
    """With and without, of two groups that take turns."""
    calls = max(2, BATCH_BYTES // max(size, 64 << 10) // ranks)
    times: list[list[float]] = [[], []]
    with Group(ranks, "auto") as reached, Group(ranks, "off") as sent:
        for number in range(rounds):
            turn = ((0, reached), (1, sent))
            for which, group in turn if number % 2 == 0 else turn[::-1]:
                times[which] += group.times_us(size, calls, in_place)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--sizes", default="256K,1M,4M,16M,64M")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--groups", type=int, default=3)
    options = parser.parse_args()
    if not PROGRAM.exists():
        print(f"there is no {PROGRAM}; make it with scripts/bench --peers", file=sys.stderr)
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
