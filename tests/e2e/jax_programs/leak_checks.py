"""Installs and uninstalls tersum many times around sums that travel; prints what it left behind:
``before: THREADS DESCRIPTORS POOL`` and ``after: …``. The pool, on whose threads XLA goes on after
a collective, stays with the process and is counted apart: how many of them were ever busy at once
is a matter of chance."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_launch import join

import tersum.jax

WARM_UPS, ROUNDS = 4, 20


def thread_name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:
        return "gone"  # it ended after it was listed


def threads_by_name() -> Counter[str]:
    return Counter(thread_name(task) for task in Path("/proc/self/task").iterdir())


def counted() -> tuple[int, int, int]:
    names = threads_by_name()
    pool = names.pop("tersum-xla", 0)
    return names.total(), len(os.listdir("/proc/self/fd")), pool


def settled(wanted: tuple[int, int, int]) -> tuple[int, int, int]:
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
    print(sorted(threads_by_name().items()))
    for number in range(WARM_UPS, WARM_UPS + ROUNDS):
        sum_once(number)
    print("after:", *settled(before), flush=True)
    print(sorted(threads_by_name().items()))


main()
