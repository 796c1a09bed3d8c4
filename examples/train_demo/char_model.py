"""A small transformer that predicts the next character, and Adam, as plain JAX functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]  # a nested dict of float32 arrays


@dataclass(frozen=True)
class Shape:
    """Sizes of the model: about 120,000 weights as it stands."""

    symbols: int
    context: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 2


def init_params(shape: Shape, seed: int) -> Params:
    """Weights drawn on the host, so that every process of a job holds the same bits."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        scale = 1.0 / np.sqrt(rows)
        return (scale * rng.standard_normal((rows, columns))).astype(np.float32)

    def layer() -> Params:
        width = shape.width
        return {
            "attention_gain": np.ones(width, np.float32),
            "query_key_value": matrix(width, 3 * width),
            "attention_output": matrix(width, width),
            "ffn_gain": np.ones(width, np.float32),
            "ffn_input": matrix(width, 4 * width),
            "ffn_output": matrix(4 * width, width),
        }

    return {
        "symbols": 0.1 * matrix(shape.symbols, shape.width),
        "positions": 0.1 * matrix(shape.context, shape.width),
        "layers": [layer() for _ in range(shape.layers)],
        "gain": np.ones(shape.width, np.float32),
        "output": matrix(shape.width, shape.symbols),
    }


def losses(params: Params, text: jax.Array, heads: int) -> jax.Array:
    """Cross entropy in nats, the mean over each row: text int32 [batch, context + 1] to [batch]."""
    tokens, targets = text[:, :-1], text[:, 1:]
    x = params["symbols"][tokens] + params["positions"][: tokens.shape[1]]
    for layer in params["layers"]:
        x = x + attention(layer, normalized(x, layer["attention_gain"]), heads)
        hidden = normalized(x, layer["ffn_gain"]) @ layer["ffn_input"]
        x = x + jax.nn.gelu(hidden) @ layer["ffn_output"]
    log_p = jax.nn.log_softmax(normalized(x, params["gain"]) @ params["output"])
    return -jnp.take_along_axis(log_p, targets[:, :, None], axis=2).mean(axis=(1, 2))


def attention(layer: Params, x: jax.Array, heads: int) -> jax.Array:
    """Causal self-attention: x [batch, tokens, width]."""
    batch, tokens, width = x.shape
    joined = (x @ layer["query_key_value"]).reshape(batch, tokens, 3, heads, width // heads)
    query, key, value = joined[:, :, 0], joined[:, :, 1], joined[:, :, 2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(width // heads)
    scores = jnp.where(np.tri(tokens, dtype=bool), scores, -1e30)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
    return mixed.reshape(x.shape) @ layer["attention_output"]


def normalized(x: jax.Array, gain: jax.Array) -> jax.Array:
    """RMSNorm."""
    return x * jax.lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * gain


@dataclass(frozen=True)
class Adam:
    """Adam with a linear warm-up. State: (step, first moments, second moments)."""

    rate: float = 3e-3
    warm_up_steps: int = 20

    def init(self, params: Params) -> tuple[np.ndarray, Params, Params]:
        def zeros() -> Params:
            return jax.tree.map(np.zeros_like, params)

        return np.zeros((), np.float32), zeros(), zeros()

    def update(self, params: Params, gradients: Params, state: Any) -> tuple[Params, Any]:
        step, first, second = state
        step = step + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.98 * v + 0.02 * g * g, second, gradients)
        rate = self.rate * jnp.minimum(1.0, step / self.warm_up_steps)

        def moved(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            mean, square = m / (1 - 0.9**step), v / (1 - 0.98**step)
            return p - rate * mean / (jnp.sqrt(square) + 1e-8)

        return jax.tree.map(moved, params, first, second), (step, first, second)


@dataclass(frozen=True)
class Momentum:
    """Gradient descent with momentum, a linear warm-up, and gradients cut to a norm of 1. Unlike
    Adam it adds gradients up, which is what gives back what a wire lost and paid later. State:
    (step, velocity)."""

    rate: float = 0.3
    warm_up_steps: int = 20

    def init(self, params: Params) -> tuple[np.ndarray, Params]:
        return np.zeros((), np.float32), jax.tree.map(np.zeros_like, params)

    def update(self, params: Params, gradients: Params, state: Any) -> tuple[Params, Any]:
        step, velocity = state
        step = step + 1
        norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradients)))
        cut = jnp.minimum(1.0, 1.0 / norm)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + cut * g, velocity, gradients)
        rate = self.rate * jnp.minimum(1.0, step / self.warm_up_steps)
        return jax.tree.map(lambda p, v: p - rate * v, params, velocity), (step, velocity)


OPTIMIZERS = {"adam": Adam, "momentum": Momentum}
