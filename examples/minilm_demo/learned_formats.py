"""Formats that are learned before they are measured: of tables, and with `+kronecker`.

A list of specs has placeholders for them: `table:FILE/64`, `kmeans:16/64`, `int4+kronecker:FILE`
(FILE as it stands). What they stand for is learned from the all-reduces of one batch, as a user
would: captured, then with `tersum learn-table`, `Communicator.learn_codec` and
`tersum train-kronecker`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tersum

Array = np.ndarray[Any, np.dtype[np.float32]]
KRONECKER = "+kronecker:FILE"


def stand_in(spec: str) -> str:
    """A spec of the same grammar that is known before anything is learned."""
    base, slash, rest = spec.partition("/")
    if base == "table:FILE" or base.startswith("kmeans:"):
        return f"nf4{slash}{rest}"
    return spec.replace(KRONECKER, "+hadamard")


def is_learned(spec: str) -> bool:
    """Whether it is a placeholder."""
    return stand_in(spec) != spec


def learn(spec: str, capture: Path, sums: Sequence[Sequence[Array]]) -> str:
    """What the placeholder ``spec`` comes to; others come back. ``capture``: of all-reduces, where
    files go, too; ``sums``: the same ones, a part for each rank."""
    if spec.startswith("kmeans:"):
        return _learn_codec(spec, sums)
    if spec.startswith("table:FILE/"):
        block = spec.removeprefix("table:FILE/").partition("+")[0]
        levels = capture / f"levels{block}.txt"
        _run("learn-table", capture, levels, "--block", block)
        return spec.replace("FILE", str(levels))
    if spec.endswith(KRONECKER):
        base = spec.removesuffix(KRONECKER)
        matrices = capture / f"{base.replace('/', '_').replace(':', '_')}.kronecker"
        _run("train-kronecker", capture, matrices, "--spec", base)
        return f"{base}+kronecker:{matrices}"
    return spec


def _run(command: str, capture: Path, out: Path, *options: str) -> None:
    line = [sys.executable, "-m", "tersum", command, "--capture", str(capture), "--out", str(out)]
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    subprocess.run([*line, *options], check=True, env=environment, stdout=subprocess.DEVNULL)


def _learn_codec(spec: str, sums: Sequence[Sequence[Array]]) -> str:
    """From what each rank of a group hands in: all get the same levels."""
    ranks = len(sums[0])
    store = tersum.MemoryStore()
    kmeans, plus, modifiers = spec.partition("+")

    def run(rank: int) -> str:
        mine = np.concatenate([parts[rank].reshape(-1) for parts in sums])
        with tersum.Communicator(rank, ranks, store) as group:
            return group.learn_codec(kmeans, mine) + plus + modifiers

    with ThreadPoolExecutor(ranks) as pool:
        found, *_ = pool.map(run, range(ranks))
    return found
