"""The formats of docs/codec-quality.md that stand there beside those of `tersum tune-codec`.

That command tries every format that has a name, plain, `+hadamard` and `+flatten`, and some with
`+sparse`, `+mixed`, `+adaptive` and `+shiftadd`. Here are the other modifiers, and formats that are
learned from calls before those that are judged: `table:FILE` by `tersum learn-table`,
`+kronecker:FILE` by `tersum train-kronecker`, and `kmeans:K/B`, which a group of ranks learns
together.
"""

from __future__ import annotations

import contextlib
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tersum
from tersum.cli import main as run_tersum

BASES = {
    "int8/128": ("+kronecker:FILE", "+sr"),
    "int8/1024": ("", "+rows:384"),
    "int6/128": ("+kronecker:FILE",),
    "int4/32": ("+hadamard+sr",),
    "int4/128": (
        *("+kronecker:FILE", "+hadamard+sr"),
        *("+clip:learned", "+hadamard+clip:learned"),
    ),
    "five/32": ("+sr",),
    "int2/32": ("+feedback", "+clip:learned"),
    "fp8e4m3/128": ("+sr",),
    "mxfp8:e4m3/32": ("+floor", "+sr"),
    "mxfp8:e5m2/32": ("+floor",),
    "mxfp6:e2m3/32": ("+floor",),
    "mxfp6:e3m2/32": ("+floor",),
    "mxfp4/32": ("+floor",),
    "mxint8/32": ("+floor",),
    "nf4/64": ("+sr",),
    "table:FILE/64": ("",),
    "kmeans:16/64": ("",),
    "kmeans:8/64": ("",),
    "sum8/256": ("+sr",),
    "sum8:tensor/1024": ("+sr",),
}
SPECS = [base + modifier for base, ways in BASES.items() for modifier in ways]


def learn(spec: str, before: Path) -> str:
    """What ``spec`` of the list stands for, once learned from the capture ``before``."""
    base, _, rest = spec.partition("/")
    if base.startswith("kmeans:"):
        return _learn_codec(spec, before)
    if base == "table:FILE":
        levels = before / "levels.txt"
        command(["learn-table", "--capture", str(before), "--out", str(levels), "--block", rest])
        return tersum.codec_info(f"table:{levels}/{rest}").spec
    if spec.endswith("+kronecker:FILE"):
        plain = spec.removesuffix("+kronecker:FILE")
        matrices = before / f"{plain.replace('/', '_')}.kronecker"
        command(
            ["train-kronecker", "--capture", str(before), "--out", str(matrices), "--spec", plain]
        )
        return tersum.codec_info(f"{plain}+kronecker:{matrices}").spec
    return tersum.codec_info(spec).spec


def command(words: list[str]) -> str:
    """What `tersum` prints. In this process, which knows what it has learned from then on."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = run_tersum(words)
    if status != 0:
        raise SystemExit(status)
    return printed.getvalue()


def _learn_codec(spec: str, before: Path) -> str:
    """From all that each rank of the capture handed in: all ranks get the same levels."""
    values = read_ranks(before)
    store = tersum.MemoryStore()

    def run(rank: int) -> str:
        with tersum.Communicator(rank, len(values), store) as group:
            return group.learn_codec(spec, values[rank])

    with ThreadPoolExecutor(len(values)) as pool:
        found, *_ = pool.map(run, range(len(values)))
    return tersum.codec_info(found).spec


def read_ranks(capture: Path) -> list[np.ndarray[Any, Any]]:
    """A capture's values, end to end, by rank (docs/tuning.md describes the files)."""
    parts: dict[int, list[np.ndarray[Any, Any]]] = {}
    for index in sorted(capture.glob("*/index.json")):
        for entry in json.loads(index.read_text())["calls"]:
            array = np.load(index.parent / entry["input"]).reshape(-1)
            parts.setdefault(entry["rank"], []).append(array)
    return [np.concatenate(parts[rank]) for rank in sorted(parts)]
