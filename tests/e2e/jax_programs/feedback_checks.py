"""+feedback in JAX: what each run of an operation, and each iteration of a loop, loses arrives with
a later one. In any number of processes; prints ``ok digest``."""

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_launch import join

import tersum.jax

SEED = 20264
LAYERS, COUNT, CALLS = 2, 3000, 24


def totals(values: np.ndarray, codec: str) -> np.ndarray:
    """[layers, count]: the same sum again and again, added up."""
    tersum.jax.uninstall()
    tersum.jax.install(codec=codec, local=True, min_bytes=0)
    mesh = Mesh(np.array(jax.devices()), ("x",))

    def summed(x: jax.Array) -> jax.Array:
        # One operation, run once per layer.
        return lax.scan(lambda carry, layer: (carry, lax.psum(layer, "x")), 0.0, x[0])[1]

    program = jax.jit(
        jax.shard_map(summed, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
    )
    array = jax.make_array_from_callback(
        values.shape, NamedSharding(mesh, P("x")), lambda index: values[index]
    )
    total = np.zeros((LAYERS, COUNT))
    for _ in range(CALLS):
        parts = [np.asarray(shard.data) for shard in program(array).addressable_shards]
        assert all(part.tobytes() == parts[0].tobytes() for part in parts)
        total += parts[0]
    return total


def main() -> None:
    join()
    jnp.zeros(1).block_until_ready()
    random = np.random.default_rng(SEED)
    values = random.standard_normal((len(jax.devices()), LAYERS, COUNT)).astype(np.float32)
    exact = CALLS * values.sum(0, dtype=np.float64)

    def error(total: np.ndarray) -> float:
        return float(np.linalg.norm(total - exact) / np.linalg.norm(exact))

    total = totals(values, "int2/32+feedback")
    assert error(total) < 0.15, error(total)
    assert error(totals(values, "int2/32")) > 0.5
    # Worlds begin anew when the options change, and when they are told to forget.
    for _ in range(2):
        assert totals(values, "int2/32+feedback").tobytes() == total.tobytes()
        tersum.jax.reset_feedback()
    print(f"ok {hashlib.sha256(total.tobytes()).hexdigest()[:16]}", flush=True)


main()
