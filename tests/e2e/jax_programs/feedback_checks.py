"""+feedback in JAX: what each run of an operation, and each iteration of a loop, loses arrives with
a later one. In any number of processes; prints ``ok digest``."""

from __future__ import annotations

import hashlib
from typing import Any

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


def install(codec: str, **options: Any) -> None:
    tersum.jax.uninstall()
    tersum.jax.install(codec=codec, local=True, min_bytes=0, **options)


def results(values: np.ndarray, calls: int) -> np.ndarray:
    """[calls, layers, count]: the same sum again and again."""
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
    found = []
    for _ in range(calls):
        parts = [np.asarray(shard.data) for shard in program(array).addressable_shards]
        assert all(part.tobytes() == parts[0].tobytes() for part in parts)
        found.append(parts[0])
    return np.stack(found)


def totals(values: np.ndarray, codec: str) -> np.ndarray:
    """[layers, count]: all calls added up."""
    install(codec)
    total: np.ndarray = results(values, CALLS).sum(0, dtype=np.float64)
    return total


def check_saved(values: np.ndarray) -> None:
    """A run goes on where another stood, in the same world and in a later one."""
    codec, half = "int2/32+feedback", CALLS // 2
    install(codec)
    results(values, half)
    saved = tersum.jax.save_feedback()
    # An error to each value of this process's devices, and some words.
    values_here = len(jax.local_devices()) * LAYERS * COUNT
    assert 4 * values_here < len(saved) < 4 * values_here + 1000, len(saved)
    rest = results(values, half)
    assert results(values, half).tobytes() != rest.tobytes()
    tersum.jax.load_feedback(saved)
    assert results(values, half).tobytes() == rest.tobytes()
    install(codec, feedback_state=saved)
    assert results(values, half).tobytes() == rest.tobytes()
    for wrong in (b"", saved[:-1], b"\0" + saved[1:], tersum.jax.save_flatten()):
        try:
            tersum.jax.load_feedback(wrong)
        except tersum.InvalidArgumentError as refusal:
            assert "save_feedback()" in str(refusal), refusal
        else:
            raise AssertionError("not refused")


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
    check_saved(values)
    print(f"ok {hashlib.sha256(total.tobytes()).hexdigest()[:16]}", flush=True)


main()
