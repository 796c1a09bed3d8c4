"""Captures what four CPU devices sum to embed words and sentences with MiniLM. Plain JAX.

    PYTHONPATH=examples/minilm_demo python captured_embeddings.py FOLDER [--calls 4] [--before 2]

FOLDER/embeddings has two sites. lookup: each device holds a quarter of the table of words, and
looks up those of a text that it has; the others are zeros there, as in any layer whose vocabulary
is split. pool: each device has a quarter of the tokens of every text, as the whole model leaves
them, and adds up its part of their mean, the text's embedding. FOLDER/before/embeddings: of texts
before those, for formats that are learned. Takes about half a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from corpus import Batches, load_tokenizer, make_batches, paragraphs
from jax.sharding import Mesh, PartitionSpec
from model import Params, hidden_states, load_params, model_directory

import tersum.jax

DEVICES = 4
BATCH, TOKENS = 32, 64
WHOLE = PartitionSpec()


def sum_parts(x: jax.Array, site: str) -> jax.Array:
    """Over the devices, under a name that the capture can tell it by."""
    with jax.named_scope(site):
        total: jax.Array = tersum.jax.psum(x, "device", codec="exact")
    return total


def look_up(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Of this device's rows of the table; [texts, tokens, 384] on all."""
    local = ids - jax.lax.axis_index("device") * len(table)
    is_here = (local >= 0) & (local < len(table))
    found = jnp.where(is_here[..., None], table[jnp.clip(local, 0, len(table) - 1)], 0)
    return sum_parts(found, "lookup")


def pool(hidden: jax.Array, mask: jax.Array, counts: jax.Array) -> jax.Array:
    """The mean of tokens whose mask is 1, of which this device has some; [texts, 384] on all."""
    mine = jnp.einsum("btc,bt->bc", hidden, mask.astype(jnp.float32))
    return sum_parts(mine / counts[:, None], "pool")


def split_layers(mesh: Mesh, params: Params) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Both, of one batch of ids and masks."""
    split_rows, split_tokens = PartitionSpec("device"), PartitionSpec(None, "device")
    over = partial(jax.shard_map, mesh=mesh, out_specs=WHOLE)
    looked_up = jax.jit(over(look_up, in_specs=(split_rows, WHOLE)))
    pooled = jax.jit(over(pool, in_specs=(split_tokens, split_tokens, WHOLE)))
    words = params["words"]
    table = np.pad(words, ((0, -len(words) % DEVICES), (0, 0)))
    whole_model = jax.jit(hidden_states)

    def run(ids: np.ndarray, mask: np.ndarray) -> Any:
        hidden = np.asarray(whole_model(params, ids, mask))
        counts = mask.sum(1).astype(np.float32)
        return jax.block_until_ready([looked_up(table, ids), pooled(hidden, mask, counts)])

    return run


def load_batches(count: int) -> Batches:
    return make_batches(paragraphs(), load_tokenizer(model_directory(), TOKENS), BATCH, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the captures go below it")
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--before", type=int, default=2, help="calls to learn formats from")
    args = parser.parse_args()

    jax.config.update("jax_num_cpu_devices", DEVICES)
    tersum.jax.install("exact", min_bytes=0, local=True, timeout_ms=600_000)
    run = split_layers(Mesh(np.array(jax.devices()), ("device",)), load_params())
    batches = load_batches(args.before + args.calls)
    texts = list(zip(batches.ids, batches.masks, strict=True))
    parts = {"before/embeddings": texts[: args.before], "embeddings": texts[args.before :]}
    for name, calls in parts.items():
        with tersum.jax.capture(args.out / name, calls=len(calls)) as recording:
            for call in calls:
                run(*call)
        print(recording.stop())


if __name__ == "__main__":
    main()
