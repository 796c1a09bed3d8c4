"""Meshes, arrays, options and bounds of the programs that check collectives."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import tersum.jax

SEED = 20260
# int8 in blocks of 128, two_step: one step is 1/127 of the block's largest value, and rounding
# costs half of it, per contribution and once for the sum; scales round up by at most 2^-7.
INT8_STEP = (1 + 2**-7) / 127


def line_mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("x",))


def place(values: np.ndarray, mesh: Mesh, spec: P) -> jax.Array:
    """A global array from values that every process has."""
    return jax.make_array_from_callback(
        values.shape, NamedSharding(mesh, spec), lambda index: values[index]
    )


def shards(array: jax.Array) -> list[np.ndarray]:
    return [np.asarray(shard.data) for shard in array.addressable_shards]


def replicated(array: jax.Array) -> np.ndarray:
    """The value that all devices of this process hold; they must be the same bits."""
    parts = shards(array)
    for part in parts[1:]:
        assert part.tobytes() == parts[0].tobytes(), "devices hold different bits"
    return parts[0]


def small_integers(*shape: int) -> np.ndarray:
    """Values whose sums are exact in float32 and bfloat16, whatever the order."""
    return np.random.default_rng(SEED).integers(-8, 8, shape).astype(np.float32)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


def sharded(body: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any) -> Any:
    return jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs)


def use(codec: str, **options: Any) -> None:
    tersum.jax.uninstall()
    options.setdefault("min_bytes", 0)
    options.setdefault("timeout_ms", 60_000)
    options.setdefault("transport", os.environ.get("TERSUM_E2E_TRANSPORT", "auto"))
    tersum.jax.install(codec, local=jax.process_count() == 1, **options)


def expect_rewritten(count_before: int, at_least: int) -> None:
    rows = tersum.jax.report()[count_before:].rewritten
    assert len(rows) >= at_least, (
        f"expected {at_least} rewritten operations:\n{tersum.jax.report()}"
    )


def int8_bound(values: np.ndarray) -> float:
    """Largest error of a sum over axis 0: per contribution, and once for the sum."""
    ranks = values.shape[0]
    absmax = float(np.abs(values).max())
    sum_absmax = float(np.abs(values.astype(np.float64).sum(0)).max())
    contributions = ranks * absmax * INT8_STEP / 2
    return contributions + (sum_absmax + contributions) * INT8_STEP / 2 + 1e-5 * sum_absmax
