"""What the ranks of a split MiniLM hand to its twelve all-reduces, and how wrong those come out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from model import Params, attention, dense, layer_norm, slice_of_rank

import tersum

Array = np.ndarray[Any, np.dtype[np.float32]]


def _without_bias(layer: Params, name: str) -> Params:
    return {**layer, name: {"weight": layer[name]["weight"], "bias": np.float32(0)}}


@jax.jit
def _parts(shares: Sequence[Params], whole: Params, ids: jax.Array, mask: jax.Array) -> Any:
    """Of the unquantized model; one entry per all-reduce, each with one part per rank."""
    x = whole["words"][ids] + whole["positions"][: ids.shape[1]] + whole["segment"]
    x = layer_norm(whole["embedding_norm"], x)
    bias = jnp.where(mask[:, None, None, :] > 0, 0.0, jnp.finfo(jnp.float32).min)
    found = []
    for index, layer in enumerate(whole["layers"]):
        mine = [_without_bias(share["layers"][index], "attention_output") for share in shares]
        found.append([attention(part, x, bias) for part in mine])
        x = layer_norm(
            layer["attention_norm"], x + sum(found[-1]) + layer["attention_output"]["bias"]
        )
        mine = [_without_bias(share["layers"][index], "ffn_output") for share in shares]
        found.append(
            [
                dense(part["ffn_output"], jax.nn.gelu(dense(part["ffn_input"], x), False))
                for part in mine
            ]
        )
        x = layer_norm(layer["ffn_norm"], x + sum(found[-1]) + layer["ffn_output"]["bias"])
    return found


def partial_sums(params: Params, ids: Array, mask: Array, ranks: int) -> list[list[Array]]:
    """float32 [batch, tokens, 384] for each all-reduce of one batch and each rank."""
    shares = [slice_of_rank(params, rank, ranks) for rank in range(ranks)]
    return [[np.asarray(part) for part in parts] for parts in _parts(shares, params, ids, mask)]


def all_reduce_errors(spec: str, batches: Sequence[Sequence[Sequence[Array]]]) -> list[float]:
    """Per batch: the relative L2 error of one all-reduce, mean over those of the batch. Ranks are
    threads, every all-reduce of a batch is a site of its own."""
    ranks = len(batches[0][0])
    store = tersum.MemoryStore()

    def run(rank: int) -> list[list[Array]]:
        with tersum.Communicator(rank, ranks, store) as group:
            return [
                [
                    group.all_reduce(parts[rank], codec=spec, plan="two_step", site=str(site))
                    for site, parts in enumerate(batch)
                ]
                for batch in batches
            ]

    with ThreadPoolExecutor(ranks) as pool:
        results, *_ = list(pool.map(run, range(ranks)))
    return [
        float(np.mean([relative_error(got, parts) for got, parts in zip(sums, batch, strict=True)]))
        for sums, batch in zip(results, batches, strict=True)
    ]


def relative_error(got: Array, parts: Sequence[Array]) -> float:
    exact = np.sum([part.astype(np.float64) for part in parts], 0)
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))
