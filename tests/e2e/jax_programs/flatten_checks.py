"""+flatten, +clip:learned and kmeans in JAX: every rewritten operation, and every iteration of a
loop, learns channels, a clip or levels of its own, and all devices end with the same bits. In any
number of processes; prints ``ok digest``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_launch import join

import tersum
import tersum.jax

SEED = 20261
ROWS, CHANNELS, LAYERS, CALLS = 32, 384, 3, 5
CLIP_CALLS = 16


def tensors(call: int, ranks: int) -> np.ndarray:
    """[ranks, layers, rows, channels]; each layer has large channels of its own."""
    random = np.random.default_rng(SEED + call)
    values = random.standard_normal((ranks, LAYERS, ROWS, CHANNELS))
    for layer in range(LAYERS):
        values[:, layer, :, [layer, 100 + 7 * layer, 300 + layer]] *= 100
    return values.astype(np.float32)


def sizes(call: int, ranks: int) -> np.ndarray:
    """The same shape; each layer is of a size of its own."""
    values = np.random.default_rng(SEED + call).standard_normal((ranks, LAYERS, ROWS, CHANNELS))
    return (values * 100.0 ** np.arange(LAYERS)[None, :, None, None]).astype(np.float32)


def errors_of(
    codec: str,
    tensors_of: Callable[[int, int], np.ndarray] = tensors,
    calls: int = CALLS,
    **options: Any,
) -> tuple[np.ndarray, bytes]:
    """[calls, layers] of relative errors with ``codec``, and the bits of all results."""
    tersum.jax.uninstall()
    tersum.jax.install(codec=codec, local=True, min_bytes=0, **options)
    mesh = Mesh(np.array(jax.devices()), ("x",))

    def summed(x: jax.Array) -> jax.Array:
        # One operation, run once per layer.
        return lax.scan(lambda carry, layer: (carry, lax.psum(layer, "x")), 0.0, x[0])[1]

    program = jax.jit(
        jax.shard_map(summed, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
    )
    errors, bits = [], b""
    for call in range(calls):
        values = tensors_of(call, len(jax.devices()))
        array = jax.make_array_from_callback(
            values.shape, NamedSharding(mesh, P("x")), lambda index, v=values: v[index]
        )
        parts = [np.asarray(shard.data) for shard in program(array).addressable_shards]
        assert all(part.tobytes() == parts[0].tobytes() for part in parts)
        exact = values.astype(np.float64).sum(0)
        bits += parts[0].tobytes()
        errors.append(
            [
                np.linalg.norm(parts[0][layer] - exact[layer]) / np.linalg.norm(exact[layer])
                for layer in range(LAYERS)
            ]
        )
    return np.array(errors), bits


def kept_across_installs(calibrated: np.ndarray) -> None:
    """What was learned serves a world that begins with it, and can be forgotten."""
    saved = tersum.jax.save_flatten()
    again, _ = errors_of("int4/128+flatten", flatten_state=saved)
    assert (again[0] < 1.02 * calibrated[1:].max(0)).all(), (again, calibrated)
    tersum.jax.reset_flatten()
    assert tersum.jax.save_flatten() != saved
    tersum.jax.load_flatten(saved)
    assert tersum.jax.save_flatten() == saved
    try:
        tersum.jax.load_flatten(saved[:-1])
    except tersum.InvalidArgumentError as error:
        assert "no saved flatten states" in str(error)
    else:
        raise AssertionError("damaged bytes were taken")


def moved(call: int, ranks: int) -> np.ndarray:
    """From the second call on the same values again and again, with other channels large."""
    values = tensors(min(call, 1), ranks)
    return values if call == 0 else np.roll(values, 50, axis=-1)


def looked_at_every_third_run() -> bytes:
    """What moved after the first run is noticed in the next one, or not before run 3 has ended, in
    every iteration of the loop by itself. The bits of the latter's results."""
    always, _ = errors_of("int4/128+flatten", moved, 7)
    assert (always[2:] < 0.7 * always[1]).all(), always
    seldom, bits = errors_of("int4/128+flatten", moved, 7, flatten_every=3)
    np.testing.assert_allclose(seldom[:2], always[:2], rtol=1e-5)
    np.testing.assert_allclose(seldom[2:4], seldom[[1, 1]], rtol=1e-5)
    np.testing.assert_allclose(seldom[5:], seldom[[4, 4]], rtol=1e-5)
    assert (seldom[4:] < 0.7 * seldom[1:4].min(0)).all(), seldom
    return bits


def main() -> None:
    join()
    jnp.zeros(1).block_until_ready()
    flattened, bits = errors_of("int4/128+flatten")
    kept_across_installs(flattened)
    rotated, _ = errors_of("int4/128+hadamard")
    np.testing.assert_allclose(flattened[0], rotated[0], rtol=1e-5)  # nothing learned yet
    assert (flattened[1:] < 0.85 * rotated[1:]).all(), (flattened, rotated)
    clipped, clipped_bits = errors_of("int2/32+clip:learned", sizes, CLIP_CALLS)
    blocks, _ = errors_of("int2/32", sizes, 2)
    np.testing.assert_allclose(clipped[:2], blocks, rtol=1e-5)  # two calls are too few to trust
    assert (clipped[-1] < 0.75 * blocks.min(0)).all(), (clipped, blocks)
    learned, learned_bits = errors_of("kmeans:16/64", sizes, 3)
    fine, _ = errors_of("int8/64", sizes, 1)
    np.testing.assert_allclose(learned[0], fine[0], rtol=1e-5)  # the first sums teach the levels
    fixed, _ = errors_of("nf4/64", sizes, 3)
    assert (3 * fine[0] < learned[1:]).all() and (learned[1:] < 1.05 * fixed[1:]).all(), learned
    bits += clipped_bits + learned_bits + looked_at_every_third_run()
    print(f"ok {hashlib.sha256(bits).hexdigest()[:16]}", flush=True)


main()
