"""The jax programs whose compiled modules the HLO pass is tested on: one process with 8 devices, a
mesh of 4 of them unless a program says otherwise. Imported where jax has those devices already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# Compiles jitted function `jitted` for abstract arguments and keeps its module under `name`.
Save = Callable[..., None]

DEVICES = np.array(jax.devices())
LINE = Mesh(DEVICES[:4], ("x",))
SQUARE = Mesh(DEVICES.reshape(2, 4), ("a", "b"))
PERMUTED = Mesh(DEVICES[[2, 7, 0, 5, 1, 6, 3, 4]].reshape(2, 4), ("a", "b"))
X = P("x")
ALL = P()
F32, BF16 = jnp.float32, jnp.bfloat16


def array(shape: tuple[int, ...] = (8, 16), dtype: Any = F32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def mapped(body: Callable[..., Any], ins: Any, outs: Any, mesh: Mesh = LINE, **jit: Any) -> Any:
    return jax.jit(partial(jax.shard_map, mesh=mesh, in_specs=ins, out_specs=outs)(body), **jit)


def contracted(mesh: Mesh, axis: str, body: Callable[[Any, Any], Any] = jnp.matmul) -> Any:
    """A matmul sharded along the contracted dimension: the partitioner adds the all-reduce."""
    return jax.jit(
        body,
        in_shardings=(NamedSharding(mesh, P(None, axis)), NamedSharding(mesh, P(axis, None))),
        out_shardings=NamedSharding(mesh, ALL),
    )


def psum(x: Any) -> Any:
    return lax.psum(x, "x")


def marked(choice: str, body: Callable[[Any], Any] = psum) -> Callable[[Any], Any]:
    """`body` under the frontend attribute tersum=`choice`."""

    def run(v: Any) -> Any:
        with set_xla_metadata(tersum=choice):
            return body(v)

    return run


def sums(save: Save) -> None:
    dtypes = {"f32": F32, "bf16": BF16, "f16": jnp.float16, "s32": jnp.int32}
    for name, dtype in dtypes.items():
        save(f"psum_{name}", mapped(psum, X, ALL), array(dtype=dtype))
    save("psum_scalar", mapped(lambda v: lax.pmean(v.sum(), "x"), X, ALL), array())
    save("pmax", mapped(lambda v: lax.pmax(v, "x"), X, ALL), array())
    save("pmin", mapped(lambda v: lax.pmin(v, "x"), X, ALL), array())
    save("all_gather", mapped(lambda v: lax.all_gather(v, "x", tiled=True), X, X), array())
    save("donated", mapped(lambda v: psum(v) + v, X, X, donate_argnums=0), array())


def matmuls(save: Save) -> None:
    a, b = array((8, 32)), array((32, 16))
    save("matmul_f32", contracted(LINE, "x"), a, b)
    save("matmul_bf16", contracted(LINE, "x"), array((8, 32), BF16), array((32, 16), BF16))
    save("matmul_square", contracted(SQUARE, "b"), a, b)
    save("matmul_permuted", contracted(PERMUTED, "a"), a, b)
    chosen = contracted(LINE, "x", lambda u, v: marked("int4", lambda w: u @ w)(v))
    save("matmul_choice", chosen, a, b)


def combined(save: Save) -> None:
    """Independent sums, which XLA merges into one tuple-shaped all-reduce."""
    three = mapped(lambda v: (psum(v), psum(v * 2), psum(jnp.sin(v))), X, (ALL, ALL, ALL))
    save("psum_tuple", three, array())
    two = mapped(lambda v: (psum(v), psum(v[:1])), X, (ALL, ALL))
    save("psum_tuple_bf16", two, array(dtype=BF16))
    mixed = mapped(lambda v, w: (psum(v), psum(w)), (X, X), (ALL, ALL))
    save("psum_mixed", mixed, array(dtype=BF16), array())
    apart = mapped(
        lambda v: tuple(psum(v * k) for k in range(1, 17)),
        X,
        (ALL,) * 16,
        compiler_options={"xla_disable_hlo_passes": "cpu-all-reduce-combiner"},
    )
    save("psum_16_apart", apart, array())


def over_axes(v: Any) -> Any:
    return lax.psum(v, "a"), lax.psum(v, "b"), lax.psum(v, ("a", "b")), lax.psum(v, ("b", "a"))


def axes(save: Save) -> None:
    outs = (P(None, "b"), P("a"), ALL, ALL)
    save("psum_axes", mapped(over_axes, P("a", "b"), outs, SQUARE), array())
    save("psum_axes_permuted", mapped(over_axes, P("a", "b"), outs, PERMUTED), array())


def promoted(save: Save) -> None:
    """bf16 sums, which XLA:CPU promotes to f32."""
    inside = mapped(lambda v: psum(jnp.sin(v) * 2) + 1, X, ALL)
    save("psum_bf16_inside", inside, array(dtype=BF16))
    read = mapped(lambda v: psum(v).astype(F32) * 0.3, X, ALL)
    save("psum_bf16_read_in_f32", read, array(dtype=BF16))
    moved = mapped(lambda v: psum(v[:, ::-1].T.reshape(4, 8))[1:3, ::2] + 1, X, ALL)
    save("psum_bf16_moved", moved, array(dtype=BF16))


def scatters(save: Save) -> None:
    scatter = partial(lax.psum_scatter, axis_name="x", tiled=True)
    save("psum_scatter", mapped(scatter, ALL, X), array())
    save("psum_scatter_bf16", mapped(scatter, ALL, X), array(dtype=BF16))
    second = mapped(partial(scatter, scatter_dimension=1), ALL, P(None, "x"))
    save("psum_scatter_second", second, array())
    both = partial(lax.psum_scatter, axis_name=("b", "a"), tiled=True)
    save("psum_scatter_axes", mapped(both, ALL, P(("b", "a")), SQUARE), array((16, 16)))


def pmaps(save: Save) -> None:
    def pmapped(body: Callable[[Any], Any]) -> Any:
        return jax.pmap(body, axis_name="x", devices=list(DEVICES[:4]))

    pairs = [[0, 3], [1, 2]]
    save("pmap", pmapped(psum), array((4, 16)))
    save(
        "pmap_groups",
        pmapped(lambda v: lax.psum(v, "x", axis_index_groups=pairs)),
        array((4, 16)),
    )


def control_flow(save: Save) -> None:
    def scan(v: Any) -> Any:
        return lax.scan(lambda c, _: (psum(c * 0.5) * 0.25 + c, None), v, None, length=4)[0]

    def loop(v: Any) -> Any:
        step = lambda c: (c[0] + 1, psum(c[1]) * 0.1 + c[1])  # noqa: E731
        return lax.while_loop(lambda c: c[0] < 3, step, (0, v))[1]

    def branch(p: Any, v: Any) -> Any:
        return lax.cond(p, psum, lambda w: psum(w * 2), v)

    save("psum_scan", mapped(scan, X, X), array())
    save("psum_while", mapped(loop, X, X), array())
    save("psum_cond", mapped(branch, (ALL, X), ALL), array((), jnp.bool_), array())


def choices(save: Save) -> None:
    specs = {"int4": "int4/32", "off": "off", "exact": "exact", "bad": "int7"}
    for name, spec in specs.items():
        save(f"psum_choice_{name}", mapped(marked(spec), X, ALL), array())
    save("psum_choice_bf16", mapped(marked("int4"), X, ALL), array(dtype=BF16))
    differing = mapped(
        lambda v: (marked("int4")(v), marked("off")(v * 2), psum(v * 3)), X, (ALL, ALL, ALL)
    )
    save("psum_choice_combined", differing, array())
    swept = mapped(lambda v: (marked("int4")(v), psum(v * 3)), X, (ALL, ALL))
    save("psum_choice_swept", swept, array())


def save_all(save: Save) -> None:
    for kind in (sums, matmuls, combined, axes, promoted, scatters, pmaps, control_flow, choices):
        kind(save)
