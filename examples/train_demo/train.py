"""Trains a small language model on licence texts, data-parallel over a JAX job. Plain JAX.

    python train.py --coordinator HOST:PORT --processes 4 --process 0 --run int8/128:0 OUT.json

Start it once per process; alone it trains over all local devices. `--run WIRE:SEED` may be given
several times. The batch is split over the devices and the weights are not, so XLA's partitioner
sums the gradients over the devices; one line makes those sums travel in another format.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from char_model import OPTIMIZERS, Params, Shape, init_params, losses
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

LICENCE_DIRECTORY = Path("/usr/share/common-licenses")


def load_text() -> tuple[np.ndarray, int]:
    """All licence texts as symbols 0..n-1 (int32), and n."""
    files = [path for path in sorted(LICENCE_DIRECTORY.glob("*")) if not path.is_symlink()]
    if not files:
        raise FileNotFoundError(f"no licence text under {LICENCE_DIRECTORY}")
    raw = np.frombuffer(b"".join(path.read_bytes() for path in files), np.uint8)
    symbols, text = np.unique(raw, return_inverse=True)
    return text.astype(np.int32), len(symbols)


class Trainer:
    """One training run over all devices of the job; every process must make the same calls."""

    def __init__(self, mesh: Mesh, seed: int, batch_size: int, optimizer: str) -> None:
        self._text, symbols = load_text()
        self._shape = Shape(symbols)
        self._batch_size = batch_size
        self._rng = np.random.default_rng([seed, 1])  # the same batches on every process
        self._split = NamedSharding(mesh, PartitionSpec("data"))
        whole = NamedSharding(mesh, PartitionSpec())
        method = OPTIMIZERS[optimizer]()
        params = init_params(self._shape, seed)
        self._params: Params = jax.tree.map(partial(place, whole), params)
        self._state: Any = jax.tree.map(partial(place, whole), method.init(params))

        def step(params: Params, state: Any, batch: jax.Array) -> tuple[Params, Any, jax.Array]:
            def mean_loss(params: Params) -> tuple[jax.Array, jax.Array]:
                each = losses(params, batch, self._shape.heads)
                return each.mean(), each

            gradients, each = jax.grad(mean_loss, has_aux=True)(params)
            return *method.update(params, gradients, state), each

        self._step = jax.jit(step, out_shardings=(whole, whole, self._split), donate_argnums=(0, 1))

    def step(self) -> list[float]:
        """One update; the losses of this process's rows, which no collective has touched."""
        length = self._shape.context + 1
        starts = self._rng.integers(0, len(self._text) - length, self._batch_size)
        rows = self._text[starts[:, None] + np.arange(length)]
        batch = place(self._split, rows)
        self._params, self._state, each = self._step(self._params, self._state, batch)
        mine = [np.asarray(shard.data) for shard in each.addressable_shards]
        return [float(value) for value in np.concatenate(mine)]

    def digest(self) -> str:
        """Of all weights on each local device: processes must agree on it bit for bit."""
        copies = {
            hashlib.sha256(
                b"".join(
                    np.asarray(leaf.addressable_shards[index].data).tobytes()
                    for leaf in jax.tree.leaves(self._params)
                )
            ).hexdigest()
            for index in range(jax.local_device_count())
        }
        return "+".join(sorted(copies))


def place(sharding: NamedSharding, value: np.ndarray) -> jax.Array:
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def train(wire: str, seed: int, steps: int, batch_size: int, optimizer: str) -> dict[str, Any]:
    """One run: this process's losses [steps][rows], and the digest of the final weights."""
    if wire != "jax":
        import tersum.jax

        # The one line. The model is tiny: below the usual min_bytes its sums would stay exact.
        tersum.jax.install(codec=wire, min_bytes=0, local=jax.process_count() == 1)
        rows, sent = len(tersum.jax.report()), tersum.jax.stats().wire_bytes_sent
    mesh = jax.make_mesh((jax.device_count(),), ("data",), (AxisType.Auto,))
    trainer = Trainer(mesh, seed, batch_size, optimizer)
    curve = [trainer.step() for _ in range(steps)]
    result = {"wire": wire, "seed": seed, "losses": curve, "digest": trainer.digest()}
    if wire != "jax":
        result["travelled_as"] = [row.travels_as for row in tersum.jax.report()[rows:]]
        result["wire_bytes"] = tersum.jax.stats().wire_bytes_sent - sent
        tersum.jax.uninstall()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the curves go here (.json), for this process")
    parser.add_argument("--coordinator", default="localhost:7744", help="served by process 0")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--run", action="append", default=[], help="WIRE:SEED, e.g. int8/128:0")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32, help="rows over all devices")
    parser.add_argument("--optimizer", choices=tuple(OPTIMIZERS), default="adam")
    args = parser.parse_args()

    if args.processes > 1:
        jax.distributed.initialize(args.coordinator, args.processes, args.process)
    results = []
    for run in args.run or ["jax:0"]:
        wire, seed = run.split(":")
        results.append(train(wire, int(seed), args.steps, args.batch_size, args.optimizer))
        if args.process == 0:
            last = np.mean(results[-1]["losses"][-25:])
            print(f"{run}: loss {last:.4f} over the last 25 of {args.steps} steps", flush=True)
    args.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
