#!/usr/bin/env python3
"""What all_reduce(residual=, bias=) saves: against adding with NumPy first, two processes.

    python bench/added_terms.py [--codecs int8/128,exact] [--mib 16] [--rounds 15]

Medians over the rounds of one run, in which the ways take turns. ``fused/apart`` is the time of the
call with a residual and a bias as part of the time of two np.add and the call.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable

import numpy as np

import tersum

COLUMNS = 4096


def median_ms(
    group: tersum.Communicator, ways: list[Callable[[], None]], rounds: int
) -> list[float]:
    times = np.empty((rounds, len(ways)))
    for round_times in times:
        for number, way in enumerate(ways):
            group.barrier()
            start = time.perf_counter()
            way()
            round_times[number] = time.perf_counter() - start
    return [float(value) for value in 1e3 * np.median(times, 0)]


def measure(rank: int, store: str, codecs: list[str], mib: int, rounds: int) -> None:
    random = np.random.default_rng(rank)
    shape = (mib * 2**18 // COLUMNS, COLUMNS)
    x, residual = (random.standard_normal(shape, np.float32) for _ in range(2))
    bias = random.standard_normal(COLUMNS, np.float32)
    formed, out = np.empty_like(x), np.empty_like(x)
    with tersum.Communicator(rank, 2, store=store) as group:
        for codec in codecs:

            def apart(codec: str = codec) -> None:
                np.add(np.add(x, residual, out=formed), bias, out=formed)
                group.all_reduce(formed, out=out, codec=codec)

            def fused(codec: str = codec) -> None:
                group.all_reduce(x, out=out, codec=codec, residual=residual, bias=bias)

            def alone(codec: str = codec) -> None:
                group.all_reduce(x, out=out, codec=codec)

            ways = [apart, fused, alone]
            median_ms(group, ways, 2)
            apart_ms, fused_ms, alone_ms = median_ms(group, ways, rounds)
            if rank == 0:
                print(
                    f"{codec:20} apart {apart_ms:7.2f} ms, fused {fused_ms:7.2f}, "
                    f"x alone {alone_ms:7.2f}; fused/apart {fused_ms / apart_ms:.2f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--codecs", default="exact,bf16,int8/128,int4/32,int6/128+hadamard")
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        args = (f"file://{folder}", given.codecs.split(","), given.mib, given.rounds)
        other = multiprocessing.get_context("spawn").Process(target=measure, args=(1, *args))
        other.start()
        measure(0, *args)
        other.join()


if __name__ == "__main__":
    main()
