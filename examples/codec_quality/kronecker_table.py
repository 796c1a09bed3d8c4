"""What trained matrices gain over a Hadamard transform with a diagonal, as docs/codecs.md shows it.

    python examples/codec_quality/kronecker_table.py [--spec int4/128] [--keep FOLDER]

Writes captures of three kinds, trains on each with `tersum train-kronecker` and prints a table of
errors of held-out sums. act and grad are drawn: N(0,1) on eight ranks, where 4 of 4,096 channels
are a hundred times as large, or where each element has a log-normal(1.5) magnitude that the ranks
share. MiniLM is the demo's, over two ranks: its twelve sums of each of ten batches of texts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tersum

HERE = Path(__file__).resolve().parent
RANKS, ROWS, CHANNELS, CALLS = 8, 64, 4096, 16
OUTLIERS = (5, 1030, 2222, 4001)
SEED = 20261122
#: The last of the twelve sums: three of its channels are 40 to 90 times as large as most.
LAST_SITE = "jit_forward/all-reduce.11"
CAPTURE_MINILM = """
import sys
sys.path.insert(0, sys.argv[2])
from embed import Encoder, load_batches
from model import load_params
import tersum.jax
batches, params = load_batches(16, 10, 64), load_params()
tersum.jax.install(codec="exact", local=True, min_bytes=0)
encoder = Encoder(params)
with tersum.jax.capture(sys.argv[1], calls=10, max_bytes=2**30):
    for text in zip(batches.ids, batches.masks, strict=True):
        encoder(*text)
"""


def draw(kind: str, call: int) -> np.ndarray[Any, Any]:
    """One row a rank."""
    random = np.random.default_rng([SEED, call])
    data = random.standard_normal((RANKS, ROWS * CHANNELS))
    if kind == "grad":
        data *= np.exp(1.5 * random.standard_normal(data.shape[1]))
    else:
        data.reshape(RANKS, ROWS, CHANNELS)[:, :, OUTLIERS] *= 100
    return data.astype(np.float32)


def capture_drawn(folder: Path, kind: str) -> None:
    """The sums of a group of threads."""
    from concurrent.futures import ThreadPoolExecutor

    store = tersum.MemoryStore()
    calls = [draw(kind, call) for call in range(CALLS)]

    def body(rank: int) -> None:
        with tersum.Communicator(rank, RANKS, store) as group:
            for call in calls:
                x = call[rank].reshape(ROWS, CHANNELS)
                group.all_reduce(x, codec="exact", site=kind)

    with tersum.capture(folder, calls=CALLS), ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(body, range(RANKS)))


def capture_minilm(folder: Path) -> None:
    """In a process of its own: JAX counts devices once."""
    demo = HERE.parent / "minilm_demo"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    command = [sys.executable, "-c", CAPTURE_MINILM, str(folder), str(demo)]
    subprocess.run(command, check=True, env=environment)


def train(capture: Path, spec: str, *options: str) -> dict[str, Any]:
    """What `tersum train-kronecker` says."""
    out = capture.with_suffix(".kronecker")
    command = [sys.executable, "-m", "tersum", "train-kronecker", "--json", "--spec", spec]
    command += ["--capture", str(capture), "--out", str(out), *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row(name: str, found: dict[str, Any]) -> str:
    """Of the table."""
    cells = [f"{error:.4f} ({body:.3f})" for error, body in found["errors"].values()]
    rows, columns = found["sides"]
    share = f"{found['of_hadamard_and_diagonal']:.3f}"
    return f"| {name} | {rows} × {columns} | " + " | ".join([*cells, share]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", default="int4/128")
    parser.add_argument("--keep", type=Path, help="captures are kept here, and taken from here")
    args = parser.parse_args()
    whole = f"1x{tersum.codec_info(args.spec).block}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep if args.keep is not None else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in ("act", "grad"):
            if not (folder / kind).is_dir():
                capture_drawn(folder / kind, kind)
        if not (folder / "minilm").is_dir():
            capture_minilm(folder / "minilm")
        print("| | sides | plain | Hadamard | and diagonal | Kronecker | of the diagonal's |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for kind in ("act", "grad"):
            print(row(f"*{kind}*", train(folder / kind, args.spec)), flush=True)
        for name, site in (("MiniLM, all sums", []), ("its last sum", ["--site", LAST_SITE])):
            for sides in ([], ["--sides", whole]):
                print(row(name, train(folder / "minilm", args.spec, *site, *sides)), flush=True)


if __name__ == "__main__":
    main()
