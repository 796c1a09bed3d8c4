"""Installs and uninstalls tersum many times around sums that travel; prints what it left behind:
``before: THREADS DESCRIPTORS`` and ``after: …``."""

from __future__ import annotations

import os
import time

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_launch import join

import tersum.jax

WARM_UPS, ROUNDS = 4, 20


def counted() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def settled(wanted: tuple[int, int]) -> tuple[int, int]:
    """What there is once it is no more than ``wanted``, or after ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = counted()
        if found[0] <= wanted[0] and found[1] <= wanted[1]:
            break
        time.sleep(0.05)
    return counted()


def sum_once(number: int) -> None:
    """Other options every time, so that the processes meet anew."""
    tersum.jax.install("int8", min_bytes=0, timeout_ms=60_000 + number)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    array = jax.make_array_from_callback(
        (len(jax.devices()), 1000),
        NamedSharding(mesh, P("x")),
        lambda index: np.ones((1, 1000), np.float32),
    )
    calls = tersum.jax.stats().calls
    program = jax.jit(
        jax.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    )
    result = np.asarray(program(array).addressable_data(0))
    np.testing.assert_allclose(result, len(jax.devices()), rtol=0.01)
    assert tersum.jax.stats().calls > calls, "the sum did not travel through tersum"
    tersum.jax.uninstall()


def main() -> None:
    join()
    for number in range(WARM_UPS):
        sum_once(number)
    time.sleep(1)
    before = counted()
    print("before:", *before, flush=True)
    for number in range(WARM_UPS, WARM_UPS + ROUNDS):
        sum_once(number)
    print("after:", *settled(before), flush=True)


main()
