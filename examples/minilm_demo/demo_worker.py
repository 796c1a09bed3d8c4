"""One rank of the demo, started by `run.py`, which changes the link's rate and gives the orders.

An order is a JSON object on a line of stdin, `{"wire", "link", "batches"}`; the rank answers on
stdout with `{"progress": seconds}` for each batch and then one `{"done": Measurement}`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TextIO


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One rank of the demo; started by run.py.")
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--core", type=int, help="the one core this rank may use")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--batch-count", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for embeddings (.npy)")
    return parser.parse_args()


def take_stdout() -> TextIO:
    """Keeps stdout for the answers; what libraries print there (gloo does) goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def main() -> None:
    args = parse_arguments()
    answers = take_stdout()
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})  # before JAX sizes its thread pools

    import jax
    from demo_bench import Bench
    from embed import load_batches

    def answer(**fields: object) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    jax.distributed.initialize(args.coordinator, args.size, args.rank)
    batches = load_batches(args.batch_size, args.batch_count, args.tokens)
    bench = Bench(batches, args.out, lambda seconds: answer(progress=seconds))
    answer(ready=True)
    for line in sys.stdin:
        order = json.loads(line)
        result = bench.measure(order["wire"], order["link"], order["batches"])
        answer(done=asdict(result))


if __name__ == "__main__":
    main()
