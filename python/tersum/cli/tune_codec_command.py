"""``tersum tune-codec``: which format suits the sums that a program makes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tersum
from tersum._captured_calls import CapturedSite, read_capture
from tersum._codec_quality import (
    OUTLIER_MEDIANS,
    SpecQuality,
    default_specs,
    measure,
    recommend,
)
from tersum.cli.command_error import CommandError

DEFAULT_MODEL_BITS = 8.2


def add_parser(commands: Any) -> None:
    """Adds ``tune-codec`` to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "tune-codec",
        help="rank wire formats on captured sums",
        description=(
            "Ranks codecs by error, body error, bits and speed on the sums that tersum.capture() "
            "or tersum.jax.capture() recorded (docs/tuning.md). Nothing is sent."
        ),
    )
    parser.add_argument("--capture", required=True, type=Path, help="the captures' directory")
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument(
        "--model-bits",
        type=float,
        help=f"recommend the smallest error in so many bits (default: {DEFAULT_MODEL_BITS})",
    )
    goal.add_argument(
        "--max-rel-error",
        type=float,
        help="recommend the fewest bits that hold this rel-L2 error on every call: 1e-2",
    )
    parser.add_argument(
        "--codec", help="specs with commas between (default: every format, some blocks)"
    )
    parser.add_argument("--ranks", type=int, default=0, help="default: as many as were captured")
    parser.add_argument(
        "--min-values", type=int, default=1024, help="leave smaller arrays out (default: 1024)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the ranking."""
    for name, value in (
        ("--model-bits", arguments.model_bits),
        ("--max-rel-error", arguments.max_rel_error),
    ):
        if value is not None and not 0 < value < float("inf"):
            raise CommandError(f"{name} must be more than 0, got {value:g}", exit_status=2)
    if arguments.ranks < 0 or arguments.ranks == 1:
        raise CommandError(
            f"--ranks must be 2 or more (0: as captured), got {arguments.ranks}", exit_status=2
        )
    sites = [site for site in read_capture(arguments.capture) if site.count >= arguments.min_values]
    if not sites:
        raise CommandError(
            f"all sums in {arguments.capture} have fewer than {arguments.min_values} values: "
            "lower --min-values"
        )
    sizes = {arguments.ranks or site.ranks for site in sites}
    specs = default_specs(sizes) if arguments.codec is None else _specs(arguments.codec)
    found = measure(specs, sites, arguments.ranks)
    model_bits = arguments.model_bits
    if model_bits is None and arguments.max_rel_error is None:
        model_bits = DEFAULT_MODEL_BITS
    best = recommend(found, model_bits, arguments.max_rel_error)
    ranks = arguments.ranks or max(site.ranks for site in sites)
    if arguments.json:
        print(json.dumps(as_json(found, best, sites, ranks), indent=2))
        return 0
    goal = f"in {model_bits:g} bits" if model_bits else f"error <= {arguments.max_rel_error:g}"
    print(heading(arguments.capture, sites, ranks))
    print(table(found, best))
    print(f"\nRecommended ({goal}): {best.spec}")
    return 0


def _specs(text: str) -> list[str]:
    specs = [spec.strip() for spec in text.split(",") if spec.strip()]
    if not specs:
        raise CommandError("--codec names no codec: int8/128,int6/128+hadamard", exit_status=2)
    return specs


def heading(capture: Path, sites: Sequence[CapturedSite], ranks: int) -> str:
    """What was measured, and what the columns mean."""
    calls = sum(len(site.calls) for site in sites)
    values = sum(site.count * len(site.calls) for site in sites)
    return "\n".join(
        [
            f"# {capture}: {calls} calls of {len(sites)} sites, {values} values, two-step "
            f"AllReduce over {ranks} ranks, the owner's part exact ({tersum.isa()})",
            "# error: rel-L2 against the sum in float64, mean and worst of the calls; body: "
            f"without sums above {OUTLIER_MEDIANS:g} medians",
            "# bits: on the wire, per value; speed: times memcpy of the f32 bytes, one core",
            "# *: no other spec has a smaller error at no more bits; >: recommended",
        ]
    )


def table(found: Sequence[SpecQuality], best: SpecQuality) -> str:
    """One row per spec, fewest bits first."""
    lines = [
        f"  {'spec':<24}{'bits':>8}"
        + "".join(f"{name:>10}" for name in ("error", "worst", "body"))
        + f"{'encode':>8}{'dec+add':>8}"
    ]
    for quality in found:
        mark = ">" if quality is best else "*" if quality.on_front else " "
        lines.append(
            f"{mark} {quality.spec:<24}{quality.bits:>8.3f}{quality.error:>10.3g}"
            f"{quality.worst:>10.3g}{quality.body:>10.3g}{quality.encode:>8.2f}"
            f"{quality.decode_add:>8.2f}"
        )
    return "\n".join(lines)


def as_json(
    found: Sequence[SpecQuality], best: SpecQuality, sites: Sequence[CapturedSite], ranks: int
) -> dict[str, Any]:
    """Everything, plain."""
    return {
        "ranks": ranks,
        "isa": tersum.isa(),
        "recommended": best.spec,
        "sites": [
            {
                "site": site.name,
                "source": site.source,
                "dtype": site.dtype,
                "count": site.count,
                "channels": site.channels,
                "calls": len(site.calls),
            }
            for site in sites
        ],
        "specs": [
            {
                "spec": quality.spec,
                "bits": quality.bits,
                "error": quality.error,
                "worst": quality.worst,
                "body": quality.body,
                "encode": quality.encode,
                "decode_add": quality.decode_add,
                "on_front": quality.on_front,
                "sites": {name: error._asdict() for name, error in quality.sites.items()},
            }
            for quality in found
        ],
    }
