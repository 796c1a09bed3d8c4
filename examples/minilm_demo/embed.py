"""Embeds text with MiniLM, tensor-parallel over the processes of a JAX job. A plain JAX program.

    python embed.py --coordinator HOST:PORT --processes 2 --process 0 [--wire int8/128] OUT.npy

Start it once per process; alone, without those options, it runs the whole model itself. `--wire`
turns on the one line that makes the all-reduces, which XLA's partitioner puts in, travel in another
format; everything else is stock JAX.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
from corpus import Batches, load_tokenizer, make_batches, paragraphs
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from model import Params, forward, load_params, model_directory, place


class Encoder:
    """The model, split over all devices of the job (every process must make the same calls)."""

    def __init__(self, params: Params) -> None:
        self._mesh = jax.make_mesh((jax.device_count(),), ("tensor",), (AxisType.Auto,))
        self._whole = NamedSharding(self._mesh, PartitionSpec())
        self._params = place(params, self._mesh)
        self._forward = jax.jit(forward, out_shardings=self._whole)

    def __call__(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """ids, mask: int32 [batch, tokens], the same on every process; returns float32
        [batch, 384] there. Blocks until the result is on the host."""
        return np.asarray(self._forward(self._params, self._replicate(ids), self._replicate(mask)))

    def compiled_text(self, ids: np.ndarray, mask: np.ndarray) -> str:
        """The HLO that XLA made of the model: shows the all-reduces of the partitioner."""
        lowered = self._forward.lower(self._params, self._replicate(ids), self._replicate(mask))
        return str(lowered.compile().as_text())

    def _replicate(self, value: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(value.shape, self._whole, lambda index: value[index])


def load_batches(batch_size: int, batch_count: int, tokens_max: int) -> Batches:
    tokenizer = load_tokenizer(model_directory(), tokens_max)
    return make_batches(paragraphs(), tokenizer, batch_size, batch_count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the embeddings go here (.npy)")
    parser.add_argument("--coordinator", default="localhost:7733", help="served by process 0")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--wire", default="jax", help="jax, or a codec such as exact or int8/128")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args()

    if args.processes > 1:
        jax.distributed.initialize(args.coordinator, args.processes, args.process)
    if args.wire != "jax":
        import tersum.jax

        tersum.jax.install(codec=args.wire)  # the one line

    encoder = Encoder(load_params())
    batches = load_batches(args.batch_size, args.batches, args.tokens)
    vectors = [encoder(ids, mask) for ids, mask in zip(batches.ids, batches.masks, strict=True)]
    if args.process == 0:
        np.save(args.out, np.concatenate(vectors))


if __name__ == "__main__":
    main()
