"""Does training on a narrow wire stay within the spread that the seed alone makes?

    python examples/train_demo/train_check.py [--processes 4] [--steps 300] [--wire int8/128]
                                              [--json docs/training-curves.json]

Runs `train.py` with three seeds on the exact and on the tried wire, by default over four processes
on loopback, prints both curves with the band, and ends with 1 if a claim fails.
`--processes 1` uses four devices of one process instead (and then needs no network).
Takes two to four minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from curve_file import CurveFile, as_json
from spread import BAND_WIDTH, judge, table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEVICES = 4
TIMEOUT_S = 900
MEAN_CLAIM = "the mean of the runs between the lowest and highest plain run, in every window"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=DEVICES, choices=(1, 2, 4))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--window", type=int, default=25, help="steps averaged for the comparison")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plain", default="exact", help="the wire that makes the band")
    parser.add_argument("--wire", default="int8/128", help="the wire that is tried")
    parser.add_argument("--optimizer", default="adam", help="or momentum")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the curves, and what was found")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "train_demo")
    return parser.parse_args()


def run_job(args: argparse.Namespace, wires: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Starts the processes and waits; what each of them measured, [process][run]."""
    runs = [f"{wire}:{seed}" for wire in wires for seed in range(args.seeds)]
    options = [part for run in runs for part in ("--run", run)]
    options += ["--steps", str(args.steps), "--processes", str(args.processes)]
    options += ["--optimizer", args.optimizer]
    options += ["--coordinator", f"127.0.0.1:{free_port()}"]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(DEVICES // args.processes),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    files = [args.out / f"process{index}.json" for index in range(args.processes)]
    started = [
        subprocess.Popen(
            [sys.executable, str(HERE / "train.py"), str(file), "--process", str(index), *options],
            env=environment,
        )
        for index, file in enumerate(files)
    ]
    try:
        ends = [process.wait(TIMEOUT_S) for process in started]
    finally:
        for process in started:
            process.kill()
    if any(ends):
        raise SystemExit(f"a process failed: exit statuses {ends}; its error is above")
    return [json.loads(file.read_text()) for file in files]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def curves(found: list[list[dict[str, Any]]], wire: str) -> np.ndarray:
    """Mean loss over all rows of the batch, of all processes: [seeds, steps]."""
    runs = [
        [run["losses"] for run in process if run["wire"] == wire] for process in found
    ]  # [process][seed][step][row]
    joined = np.concatenate([np.array(process) for process in runs], axis=2)
    means: np.ndarray = joined.mean(axis=2)
    return means


def same_weights(found: list[list[dict[str, Any]]]) -> bool:
    """Whether after each run all devices of all processes held the same bits."""
    return all(
        len({run["digest"] for run in same_run}) == 1 and "+" not in same_run[0]["digest"]
        for same_run in zip(*found, strict=True)
    )


def all_took_the_wire(found: list[list[dict[str, Any]]], wire: str) -> bool:
    """Whether every sum of every run of `wire` travelled as that, and bytes were really sent."""
    runs = [run for process in found for run in process if run["wire"] == wire]
    return wire == "jax" or all(
        run["wire_bytes"] > 0 and set(run["travelled_as"]) == {wire} for run in runs
    )


def main() -> int:
    args = parse_arguments()
    print(
        f"{args.processes} processes x {DEVICES // args.processes} devices, {args.steps} steps, "
        f"{args.seeds} seeds: {args.plain} against {args.wire}",
        flush=True,
    )
    found = run_job(args, (args.plain, args.wire))
    plain, tried = curves(found, args.plain), curves(found, args.wire)
    verdict = judge(plain, tried, args.window)
    print(table(verdict, args.plain, args.wire))
    apart = np.abs(verdict.tried - judge(plain, plain, args.window).tried).max()
    print(f"same seed, both wires: the windows differ by at most {apart:.4f}")
    claims = {
        f"every run within mean +- {BAND_WIDTH:g} sd, in every window": verdict.every_run_within,
        MEAN_CLAIM: verdict.mean_within,
        "every gradient sum of every run travelled as that": all_took_the_wire(found, args.wire),
        "all devices end with the same bits, in every run": same_weights(found),
    }
    for text, held in claims.items():
        print(f"{'held  ' if held else 'MISSED'}  {args.wire}: {text}")
    if args.json is not None:
        names = ("processes", "steps", "window", "seeds", "optimizer", "plain", "wire")
        settings = {"ranks": DEVICES, **{name: getattr(args, name) for name in names}}
        args.json.write_text(as_json(CurveFile(settings, plain, tried, claims)))
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
