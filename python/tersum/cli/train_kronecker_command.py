"""``tersum train-kronecker``: matrices that suit what a program sums, as a file."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tersum
from tersum._codec_quality import Truth
from tersum._kronecker_data import common_channels, in_rows, read_data
from tersum._kronecker_training import best_sides, first_transform, train
from tersum._rank_groups import RankGroups
from tersum.cli.captured_sites import read_sites
from tersum.cli.command_error import CommandError

Floats = npt.NDArray[np.float32]

DEFAULT_STEPS = 600


def add_parser(commands: Any) -> None:
    """Adds ``train-kronecker`` to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "train-kronecker",
        help="train the matrices of +kronecker on captured sums",
        description=(
            "Trains, by gradient with JAX, the matrices and factors of +kronecker:FILE on what "
            "tersum.capture() or tersum.jax.capture() recorded, and prints the errors of sums of "
            'calls that were held out (docs/codecs.md, "The modifier +kronecker").'
        ),
    )
    parser.add_argument("--capture", required=True, type=Path, help="the captures' directory")
    parser.add_argument("--spec", required=True, help="the format and its block, such as int4/128")
    parser.add_argument("--out", required=True, type=Path, help="the file to write")
    parser.add_argument("--site", help="learn from this site only (default: from all)")
    parser.add_argument(
        "--sides", help="rows and columns of a block, such as 8x16; 1x128 is one matrix for all"
    )
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the file and prints the table."""
    if arguments.steps < 1 or arguments.seed < 0:
        raise CommandError("--steps must be 1 or more, --seed 0 or more", exit_status=2)
    info = tersum.codec_info(arguments.spec)
    sides = _sides(arguments.sides, info.block)
    sites = read_sites(arguments.capture, arguments.site)
    channels = common_channels(sites)
    # Without channels a value's factor goes by its place in its block.
    period = channels or info.block
    data = read_data(sites, period, info.block, arguments.seed)
    found = train(data.blocks, period, info.spec, sides, arguments.steps, arguments.seed)
    start = first_transform(data.blocks, period, sides, arguments.seed)
    about = f"tersum train-kronecker, {info.spec}, {data.learned} calls, seed {arguments.seed}"
    try:
        modifier = tersum.write_kronecker(arguments.out, *found.transform, comment=about)
    except OSError as error:
        raise CommandError(f"cannot write {arguments.out}: {error.strerror}") from error
    specs = {
        "plain": info.spec,
        "hadamard": f"{info.spec}+hadamard",
        "hadamard and diagonal": f"{info.spec}+{tersum.register_kronecker(*start)}",
        "kronecker": f"{info.spec}+{modifier}",
    }
    errors = measure(list(specs.values()), list(in_rows(data.held_out, channels)))
    of_start = errors[specs["kronecker"]][0] / errors[specs["hadamard and diagonal"]][0]
    apart = [math.sqrt(loss * len(data.blocks.weights) / data.learned) for loss in found[1:]]
    result = {
        "spec": specs["kronecker"],
        "sites": len(sites),
        "learned": data.learned,
        "held_out": len(data.held_out),
        "sides": sides,
        "channels": channels,
        "steps": arguments.steps,
        "seed": arguments.seed,
        "kept_apart": apart,
        "errors": {name: errors[spec] for name, spec in specs.items()},
        "of_hadamard_and_diagonal": of_start,
    }
    print(json.dumps(result, indent=2) if arguments.json else table(result))
    return 0


def table(result: dict[str, Any]) -> str:
    """What came of it, for people."""
    rows, columns = result["sides"]
    before, after = result["kept_apart"]
    lines = [
        f"# {result['sites']} sites, {result['learned']} calls learned from, "
        f"{result['held_out']} held out; {rows}x{columns}, {result['channels'] or 'no'} channels, "
        f"{result['steps']} steps, seed {result['seed']}",
        f"# expected of blocks of calls that were learned from, kept apart: {before:.4g} at first, "
        f"{after:.4g} in the end",
        "# sums of calls that were held out, two-step, the owner's part exact; body: without "
        "outliers",
        f"{'':<24}{'error':>10}{'body':>10}",
        *(
            f"{name:<24}{error:>10.4g}{body:>10.4g}"
            for name, (error, body) in result["errors"].items()
        ),
        f"Of the error of Hadamard and diagonal: {result['of_hadamard_and_diagonal']:.3f}",
        f"Ranks that compare specs see {result['spec']}",
    ]
    return "\n".join(lines)


def measure(specs: Sequence[str], calls: Sequence[Floats]) -> dict[str, tuple[float, float]]:
    """Means over calls of error and body error, by tersum's own collective."""
    found = {}
    with closing(RankGroups()) as groups:
        for spec in specs:
            errors = []
            for inputs in calls:
                truth = Truth.of(inputs.reshape(len(inputs), -1))
                if truth is None:
                    continue
                total = groups.all_reduce(inputs, spec, "judged").reshape(-1)
                errors.append(truth.error_of(total))
            mean = np.mean([(error.error, error.body) for error in errors], 0)
            found[spec] = (float(mean[0]), float(mean[1]))
    return found


def _sides(text: str | None, block: int) -> tuple[int, int]:
    if text is None:
        return best_sides(block)
    rows, _, columns = text.partition("x")
    if not (rows.isdigit() and columns.isdigit()) or int(rows) * int(columns) != block:
        raise CommandError(
            f"--sides is written ROWSxCOLUMNS with a product of {block}, the block of the spec, "
            f"not {text}",
            exit_status=2,
        )
    return int(rows), int(columns)
