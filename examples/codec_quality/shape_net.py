"""A small convolution net, alone or with each layer's input channels spread over devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

#: Output channels and stride of each 3x3 layer.
LAYERS = ((32, 2), (64, 1), (64, 2), (128, 1), (128, 2))
Sum = Callable[[jax.Array], jax.Array]


def init_params(classes: int, seed: int) -> Params:
    """He-scaled weights, drawn on the host."""
    rng = np.random.default_rng(seed)
    layers, before = [], 3
    for channels, _ in LAYERS:
        scale = np.sqrt(2 / (9 * before))
        kernel = scale * rng.standard_normal((3, 3, before, channels))
        layers.append(
            {
                "kernel": kernel.astype(np.float32),
                "gain": np.ones(channels, np.float32),
                "shift": np.zeros(channels, np.float32),
            }
        )
        before = channels
    head = rng.standard_normal((before, classes)) / np.sqrt(before)
    return {"layers": layers, "head": head.astype(np.float32)}


def logits(params: Params, images: jax.Array, sum_parts: Sum | None = None) -> jax.Array:
    """Of images [batch, rows, columns, 3]. With ``sum_parts`` each layer but the first is given a
    part of its input channels (its kernel, too), and adds the parts of all devices up."""
    x = images
    for number, (layer, (_, stride)) in enumerate(zip(params["layers"], LAYERS, strict=True)):
        kernel = layer["kernel"]
        if sum_parts is not None and number > 0:
            width = kernel.shape[2]
            begin = jax.lax.axis_index("model") * width
            x = jax.lax.dynamic_slice_in_dim(x, begin, width, axis=3)
        x = jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        if sum_parts is not None and number > 0:
            x = sum_parts(x)
        x = jax.nn.relu(normalized(x) * layer["gain"] + layer["shift"])
    return x.mean(axis=(1, 2)) @ params["head"]


def normalized(x: jax.Array) -> jax.Array:
    """Each image's features, over all positions of eight groups of channels."""
    batch, rows, columns, channels = x.shape
    groups = x.reshape(batch, rows, columns, 8, channels // 8)
    mean = groups.mean(axis=(1, 2, 4), keepdims=True)
    variance = groups.var(axis=(1, 2, 4), keepdims=True)
    return ((groups - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def loss(params: Params, images: jax.Array, classes: jax.Array) -> jax.Array:
    """Mean cross entropy in nats."""
    log_p = jax.nn.log_softmax(logits(params, images))
    return -jnp.take_along_axis(log_p, classes[:, None], axis=1).mean()
