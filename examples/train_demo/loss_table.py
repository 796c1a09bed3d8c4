"""What training loses on each wire: a table of final losses over seeds, beside the exact wire.

    python examples/train_demo/loss_table.py [--steps 160] [--optimizer adam] [--wires int8/128,…]
                                             [--json docs/training-losses.json]

Four data-parallel ranks train the transformer of `train.py` on the licence texts, once per wire and
seed: four devices of one process, or with `--processes 4` as many processes on loopback. Both send
the same bytes to as many ranks and end with the same weights. Prints a table in Markdown and ends
with 1 if a wire of the claim is not within the spread of the exact runs.

The first figure is the mean loss of all rows over the last `--window` steps, in nats a character:
mean and standard deviation over the seeds. The second takes the exact run of the same seed (and so
of the same batches) from each: how much the wire alone has moved it.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from train_check import DEVICES, ROOT, all_took_the_wire, curves, run_job, same_weights

EXACT = "exact"
#: Wires whose mean loss must lie within the exact runs' spread.
CLAIMED = (
    "int8/128",
    "int6/128+flatten",
    "int4/128+hadamard+sr",
    "int2/32+feedback",
)
#: And what the last one would be without its modifier.
WITHOUT = ("int2/32",)


@dataclass(frozen=True)
class Row:
    """One wire's runs: [seeds], and those of the exact wire with the same seeds."""

    wire: str
    bits: float
    losses: np.ndarray
    exact: np.ndarray

    @property
    def moved(self) -> np.ndarray:
        apart: np.ndarray = self.losses - self.exact
        return apart

    @property
    def is_within(self) -> bool:
        """Whether the mean is no worse than the worst exact run, nor two deviations off theirs."""
        centre, spread = self.exact.mean(), self.exact.std(ddof=1)
        return bool(abs(self.losses.mean() - centre) <= min(2 * spread, np.ptp(self.exact)))

    def text(self) -> str:
        runs = ", ".join(f"{loss:.4f}" for loss in self.losses)
        own = f"{self.losses.mean():.4f} ± {self.losses.std(ddof=1):.4f}"
        moved = f"{self.moved.mean():+.4f} ± {self.moved.std(ddof=1):.4f}"
        within = "yes" if self.is_within else "no"
        return f"| `{self.wire}` | {self.bits:.2f} | {own} | {runs} | {moved} | {within} |"


HEAD = (
    "| wire | bits | loss, mean ± sd | each seed | beside exact, same seed | within its spread |\n"
    "|---|---|---|---|---|---|"
)


def final_losses(found: list[list[dict[str, Any]]], wire: str, window: int) -> np.ndarray:
    """[seeds]"""
    means: np.ndarray = curves(found, wire)[:, -window:].mean(axis=1)
    return means


def rows(found: list[list[dict[str, Any]]], wires: list[str], window: int) -> list[Row]:
    import tersum

    exact = final_losses(found, EXACT, window)
    return [
        Row(wire, tersum.codec_info(wire).wire_bits, final_losses(found, wire, window), exact)
        for wire in wires
    ]


def as_json(table: list[Row], settings: dict[str, Any]) -> str:
    """What was run, and the loss of every seed on every wire; the first wire is the exact one."""
    wires = [{"wire": row.wire, "bits": row.bits, "losses": row.losses.tolist()} for row in table]
    return json.dumps({**settings, "wires": wires}, indent=1) + "\n"


def from_json(text: str) -> list[Row]:
    """The table that `as_json` wrote."""
    wires = json.loads(text)["wires"]
    exact = np.array(wires[0]["losses"])
    return [Row(w["wire"], w["bits"], np.array(w["losses"]), exact) for w in wires]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1, choices=(1, 2, 4))
    parser.add_argument("--optimizer", default="momentum", help="or adam")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--window", type=int, default=40, help="last steps that count")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--wires", default=",".join(CLAIMED + WITHOUT), help="beside exact")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "loss_table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the losses, once more")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    wires = [EXACT, *args.wires.split(",")]
    print(
        f"{DEVICES} ranks, {args.steps} steps, {args.seeds} seeds, {len(wires)} wires", flush=True
    )
    found = run_job(args, wires)
    table = rows(found, wires, args.window)
    print("\n".join([HEAD, *(row.text() for row in table)]))
    if args.json is not None:
        settings = {key: getattr(args, key) for key in ("optimizer", "steps", "window", "seeds")}
        args.json.write_text(as_json(table, {"ranks": DEVICES, **settings}))
    missed = [row.wire for row in table if row.wire in CLAIMED and not row.is_within]
    missed += [wire for wire in wires if not all_took_the_wire(found, wire)]
    if not same_weights(found):
        missed.append("equal bits on all devices")
    print(f"MISSED: {', '.join(missed)}" if missed else "held: every claimed wire, equal bits")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
