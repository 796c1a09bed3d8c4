"""What programs see when something goes wrong. Argument: the case.

Survivors print ``error: …`` with the message they got and how long it took, and leave without the
farewells of jax.distributed, which would wait for the dead.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import distributed
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_launch import join

import tersum.jax

TIMEOUT_MS = int(os.environ.get("TERSUM_E2E_TIMEOUT_MS", "6000"))


def leave(index: int, case: str) -> None:
    """Ends this process without goodbye. Process 0 goes last: it runs the coordination service, and
    JAX aborts the others when that is gone."""
    client = distributed.global_state.client
    if index == 0:
        other = 2 if case == "peer_lost" else 1
        client.blocking_key_value_get(f"left/{other}", 60_000)
        time.sleep(3)  # the other hears that its key is set, and is gone
    else:
        client.key_value_set(f"left/{index}", "yes")
    sys.stdout.flush()
    os._exit(0)


def mesh_of_all() -> Mesh:
    return Mesh(np.array(jax.devices()), ("x",))


def global_array(mesh: Mesh, columns: int, sums: int = 1) -> jax.Array:
    shape = (len(jax.devices()), sums, columns)
    return jax.make_array_from_callback(
        shape, NamedSharding(mesh, P("x")), lambda index: np.ones((1, sums, columns), np.float32)
    )


def sums_program(mesh: Mesh, sums: int) -> Any:
    def body(x: jax.Array) -> list[jax.Array]:
        return [lax.psum(x[:, i] * (i + 1), "x") for i in range(sums)]

    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P()))


def run_until_error(program: Any, array: jax.Array) -> None:
    while True:
        start = time.monotonic()
        try:
            jax.block_until_ready(program(array))
        except (
            jax.errors.JaxRuntimeError,
            ValueError,
        ) as error:  # FAILED_PRECONDITION is the latter
            seconds = time.monotonic() - start
            print(f"error: after {seconds:.2f} s: {error}", flush=True)
            return
        print("step", flush=True)


def churn_memory() -> None:
    """Allocates and frees what a late writer would hit, and checks it."""
    for _ in range(100):
        blocks = [jnp.full(200_000, 7.0) for _ in range(8)]
        for block in blocks:
            assert float(block.sum()) == 1_400_000.0
    print("memory is intact", flush=True)


def peer_lost(index: int) -> None:
    """The parent kills or stops process 1 in the middle."""
    tersum.jax.install("int8", min_bytes=0, timeout_ms=TIMEOUT_MS)
    mesh = mesh_of_all()
    array = global_array(mesh, 300_000, 4)
    program = sums_program(mesh, 4)
    run_until_error(program, array)
    churn_memory()
    # The world is broken: later calls say why, at once.
    start = time.monotonic()
    try:
        jax.block_until_ready(program(array))
    except jax.errors.JaxRuntimeError as error:
        print(f"again: after {time.monotonic() - start:.2f} s: {error}", flush=True)


def different_options(index: int) -> None:
    tersum.jax.install("int8/128" if index == 0 else "int4/32", min_bytes=0, timeout_ms=TIMEOUT_MS)
    mesh = mesh_of_all()
    run_until_error(sums_program(mesh, 1), global_array(mesh, 1_000))


def different_programs(index: int) -> None:
    tersum.jax.install("int8", min_bytes=0, timeout_ms=TIMEOUT_MS)
    mesh = mesh_of_all()
    columns = 1_000 if index == 0 else 2_000
    jax.block_until_ready(sums_program(mesh, 1)(global_array(mesh, 512)))
    run_until_error(sums_program(mesh, 1), global_array(mesh, columns))


def different_states(index: int) -> None:
    """Process 1 forgets what all have learned, and later goes back to what it knew before."""
    tersum.jax.install("int8/64+flatten", min_bytes=0, timeout_ms=TIMEOUT_MS)
    mesh = mesh_of_all()
    program, array = sums_program(mesh, 1), global_array(mesh, 1_000)

    def step() -> None:
        np.testing.assert_allclose(
            np.asarray(program(array)[0].addressable_data(0)), len(jax.devices()), rtol=0.1
        )

    step()
    early = tersum.jax.save_flatten()
    if index == 1:
        tersum.jax.reset_flatten()
    run_until_error(program, array)
    tersum.jax.reset_flatten()  # in every process: equal again
    for _ in range(2):
        step()
    if index == 1:
        tersum.jax.load_flatten(early)
    run_until_error(program, array)
    tersum.jax.load_flatten(early)
    step()
    print("equal again", flush=True)


def not_installed_everywhere(index: int) -> None:
    if index == 0:
        tersum.jax.install("int8", min_bytes=0, timeout_ms=2_000)
        mesh = mesh_of_all()
        run_until_error(sums_program(mesh, 1), global_array(mesh, 1_000))
    else:
        time.sleep(8)


def main() -> None:
    case = {
        function.__name__: function
        for function in (
            peer_lost,
            different_options,
            different_programs,
            different_states,
            not_installed_everywhere,
        )
    }[sys.argv[1]]
    index = join()
    jax.devices()  # JAX itself waits here until all processes have started
    case(index)
    leave(index, sys.argv[1])


main()
