"""Captures the sums of a data-parallel gradient over all processes, into the folder given."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_launch import join

import tersum.jax

ROWS, WIDTH = 32, 96


def main() -> None:
    join()
    tersum.jax.install("int6/32", min_bytes=0, plan="two_step")
    mesh = Mesh(np.array(jax.devices()), ("data",))
    values = np.random.default_rng(20261122).standard_normal((ROWS, WIDTH)).astype(np.float32)
    batch = jax.make_array_from_callback(
        values.shape, NamedSharding(mesh, P("data")), lambda index: values[index]
    )
    weights = jnp.eye(WIDTH, 64)

    @jax.jit
    def gradient(weights: jax.Array, batch: jax.Array) -> jax.Array:
        return jax.grad(lambda w: (jnp.tanh(batch @ w) ** 2).sum())(weights)

    with tersum.jax.capture(sys.argv[1], calls=3) as recording:
        for step in range(4):
            jax.block_until_ready(gradient(weights + 0.1 * step, batch))
    print(recording.stop())


main()
