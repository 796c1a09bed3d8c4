"""+sr in JAX: the seed says all bits, every run of an operation rounds anew, and all devices end
with the same. In any number of processes; prints ``ok digest``."""

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

SEED = 20263
COUNT, CALLS = 5000, 40


def sums(values: np.ndarray, rounding_seed: int) -> np.ndarray:
    """[calls, count]: the same sum again and again."""
    tersum.jax.uninstall()
    tersum.jax.install(
        codec="int4/128+hadamard+sr", local=True, min_bytes=0, rounding_seed=rounding_seed
    )
    mesh = Mesh(np.array(jax.devices()), ("x",))
    program = jax.jit(
        jax.shard_map(
            lambda x: lax.psum(x[0], "x"),
            mesh=mesh,
            in_specs=P("x"),
            out_specs=P(),
            check_vma=False,
        )
    )
    array = jax.make_array_from_callback(
        values.shape, NamedSharding(mesh, P("x")), lambda index: values[index]
    )
    results = []
    for _ in range(CALLS):
        parts = [np.asarray(shard.data) for shard in program(array).addressable_shards]
        assert all(part.tobytes() == parts[0].tobytes() for part in parts)
        results.append(parts[0])
    return np.array(results)


def main() -> None:
    join()
    jnp.zeros(1).block_until_ready()
    random = np.random.default_rng(SEED)
    values = random.standard_normal((len(jax.devices()), COUNT)).astype(np.float32)
    exact = values.sum(0, dtype=np.float64)
    # Worlds begin anew when the options change.
    first, other, again = sums(values, 3), sums(values, 4), sums(values, 3)
    assert first.tobytes() == again.tobytes()
    assert len({row.tobytes() for row in (*first, *other)}) == 2 * CALLS
    # Without bias: the mean of many is nearer by the root of their number.
    error = np.linalg.norm(first[0] - exact)
    mean = first.mean(0, dtype=np.float64)
    assert np.linalg.norm(mean - exact) < 1.2 * error / CALLS**0.5
    print(f"ok {hashlib.sha256(first.tobytes()).hexdigest()[:16]}", flush=True)


main()
