#!/usr/bin/env python3
"""Sums of tensors that live on a GPU, by way of CPU memory: what page-locked staging saves.

    python bench/gpu_staging.py [--codecs exact,int8/128] [--mib 4,64] [--transport tcp]

Two processes with a tensor each on the first GPU. *plain*: ``x.copy_(group.all_reduce(x.cpu()))``.
*pinned*: copied into a page-locked tensor, summed there in place, and copied back. *Gloo*: torch's
``all_reduce`` of the very tensor. Medians over the rounds of one run, in which the ways take turns;
the copies alone beside them. Every way's first sum is compared with the one in float64, and plain
and pinned must have the same bits. Exit status 1 if a sum is wrong, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import tersum

Way = Callable[[torch.Tensor], None]


def median_ms(group: tersum.Communicator, ways: list[Way], rounds: int, count: int) -> list[float]:
    times = torch.empty(rounds, len(ways))
    x = torch.zeros(count, device="cuda")
    for round_times in times:
        for number, way in enumerate(ways):
            x.normal_()
            torch.cuda.synchronize()
            group.barrier()
            start = time.perf_counter()
            way(x)
            torch.cuda.synchronize()
            round_times[number] = time.perf_counter() - start
    return [float(value) for value in 1e3 * times.median(0).values]


def check_sums(group: tersum.Communicator, ways: list[Way], codec: str, count: int) -> float:
    """The relative error of a pinned sum, against that in float64."""
    torch.manual_seed(group.rank)
    x = torch.randn(count)
    exact = group.all_reduce(x.double(), codec="exact")
    sums = [x.cuda() for _ in ways]
    for way, on_gpu in zip(ways, sums, strict=True):
        way(on_gpu)
    plain, pinned, gloo = (float((s.cpu() - exact).norm() / exact.norm()) for s in sums)
    if not torch.equal(sums[0], sums[1]):
        sys.exit(f"error: {codec}: page-locked memory changed the sum's bits")
    if not (plain <= (1e-6 if codec == "exact" else 0.2) and gloo <= 1e-6):
        sys.exit(f"error: {codec}: a sum was wrong by {plain:.2e}, Gloo's by {gloo:.2e}")
    return pinned


def ways_of(group: tersum.Communicator, codec: str, count: int) -> list[Way]:
    host = torch.empty(count, pin_memory=True)

    def plain(x: torch.Tensor) -> None:
        x.copy_(group.all_reduce(x.cpu(), codec=codec))

    def to_host(x: torch.Tensor) -> None:
        host.copy_(x, non_blocking=True)
        torch.cuda.synchronize()

    def pinned(x: torch.Tensor) -> None:
        to_host(x)
        group.all_reduce(host, out=host, codec=codec)
        x.copy_(host, non_blocking=True)

    def copies(x: torch.Tensor) -> None:
        to_host(x)
        x.copy_(host, non_blocking=True)

    return [plain, pinned, dist.all_reduce, copies]


def measure(rank: int, folder: str, given: argparse.Namespace) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=2)
    store = f"file://{folder}/tersum"
    with tersum.Communicator(rank, 2, store=store, transport=given.transport) as group:
        for mib in given.mib.split(","):
            for codec in given.codecs.split(","):
                count = int(mib) * 2**18
                ways = ways_of(group, codec, count)
                error = check_sums(group, ways[:3], codec, count)
                median_ms(group, ways, 2, count)
                plain, pinned, gloo, copies = median_ms(group, ways, given.rounds, count)
                if rank == 0:
                    print(
                        f"| {mib} MiB | {codec} | {plain:.2f} ms | {pinned:.2f} ms "
                        f"| {plain / pinned:.2f} | {gloo:.2f} ms | {gloo / pinned:.2f} "
                        f"| {copies:.2f} ms | {error:.1e} |",
                        flush=True,
                    )
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--codecs", default="exact,bf16,int8/128")
    parser.add_argument("--mib", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--transport", default="auto")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("error: torch sees no GPU here", file=sys.stderr)
        sys.exit(2)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tersum {tersum.__version__}")
    print("| f32 | codec | plain | pinned | gain | Gloo | over it | copies alone | error |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        other = multiprocessing.get_context("spawn").Process(
            target=measure, args=(1, folder, given)
        )
        other.start()
        measure(0, folder, given)
        other.join()
    sys.exit(other.exitcode)


if __name__ == "__main__":
    main()
