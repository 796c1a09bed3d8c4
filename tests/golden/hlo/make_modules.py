"""Makes the serialized modules that the HLO pass is tested on.

    python make_modules.py            # both sets
    python make_modules.py jax        # jax-<version>/: dumped from the installed jax
    python make_modules.py handmade   # handmade/: what jax does not emit, built field by field

Needs jax and the protobuf runtime (`pip install protobuf`). The message classes come from the
descriptors inside jaxlib, so they know every field and owe nothing to tersum's own reader. Source
paths are cut to file names before they enter a module.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DEVICES = 8


@functools.cache
def descriptor_pool() -> Any:
    """The installed jaxlib's hlo.proto and what it imports."""
    import hlo_descriptors
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(file: str) -> None:
        if file in added:
            return
        added.add(file)
        descriptor = descriptor_pb2.FileDescriptorProto.FromString(
            hlo_descriptors.installed_descriptor(file)
        )
        for dependency in descriptor.dependency:
            add(dependency)
        pool.Add(descriptor)

    add(hlo_descriptors.HLO_FILE)
    return pool


def message_class(name: str) -> Any:
    """The protobuf class of message xla.`name`, as the installed jaxlib defines it."""
    from google.protobuf import message_factory

    descriptor = descriptor_pool().FindMessageTypeByName(f"xla.{name}")
    return message_factory.GetMessageClass(descriptor)


class Dumper:
    """Collects the modules that reach the compiler hook."""

    def __init__(self, folder: Path) -> None:
        import jax
        from jax.extend import xla

        jax.config.update("jax_hlo_source_file_canonicalization_regex", r".*/")
        self.folder = folder
        self.modules: list[bytes] = []
        xla.register_hlo_module_transformation(self._see, name="dump", platforms="cpu")

    def _see(self, module: bytes) -> None:
        self.modules.append(bytes(module))

    def save(self, name: str, jitted: Any, *arguments: Any) -> None:
        """Compiles, without running, and writes the last module seen to NAME.pb."""
        self.modules.clear()
        jitted.lower(*arguments).compile()
        (self.folder / f"{name}.pb").write_bytes(self.modules[-1])


def dump_one_process(folder: Path) -> None:
    """Programs of one process with 8 devices; a mesh of 4 unless it says otherwise."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.experimental.xla_metadata import set_xla_metadata
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    dump = Dumper(folder)
    devices = np.array(jax.devices())
    line = Mesh(devices[:4], ("x",))
    square = Mesh(devices.reshape(2, 4), ("a", "b"))
    permuted = Mesh(devices[[2, 7, 0, 5, 1, 6, 3, 4]].reshape(2, 4), ("a", "b"))
    f32 = jnp.float32
    bf16 = jnp.bfloat16

    def array(shape: tuple[int, ...], dtype: Any = f32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    def mapped(body: Callable[..., Any], ins: Any, outs: Any, mesh: Mesh = line, **jit: Any) -> Any:
        return jax.jit(partial(jax.shard_map, mesh=mesh, in_specs=ins, out_specs=outs)(body), **jit)

    def matmul(mesh: Mesh, axis: str) -> Any:
        return jax.jit(
            lambda a, b: a @ b,
            in_shardings=(NamedSharding(mesh, P(None, axis)), NamedSharding(mesh, P(axis, None))),
            out_shardings=NamedSharding(mesh, P()),
        )

    def psum(x: Any) -> Any:
        return lax.psum(x, "x")

    x = P("x")
    for name, dtype in (("f32", f32), ("bf16", bf16), ("f16", jnp.float16), ("s32", jnp.int32)):
        dump.save(f"psum_{name}", mapped(psum, x, P()), array((8, 16), dtype))
    dump.save("psum_scalar", mapped(lambda v: lax.pmean(v.sum(), "x"), x, P()), array((8, 16)))
    dump.save("pmax", mapped(lambda v: lax.pmax(v, "x"), x, P()), array((8, 16)))
    dump.save("pmin", mapped(lambda v: lax.pmin(v, "x"), x, P()), array((8, 16)))
    dump.save(
        "all_gather", mapped(lambda v: lax.all_gather(v, "x", tiled=True), x, x), array((8, 16))
    )
    dump.save("matmul_f32", matmul(line, "x"), array((8, 32)), array((32, 16)))
    dump.save("matmul_bf16", matmul(line, "x"), array((8, 32), bf16), array((32, 16), bf16))
    dump.save("matmul_square", matmul(square, "b"), array((8, 32)), array((32, 16)))
    dump.save("matmul_permuted", matmul(permuted, "a"), array((8, 32)), array((32, 16)))
    dump.save(
        "psum_tuple",
        mapped(lambda v: (psum(v), psum(v * 2), psum(jnp.sin(v))), x, (P(), P(), P())),
        array((8, 16)),
    )
    dump.save(
        "psum_tuple_bf16",
        mapped(lambda v: (psum(v), psum(v[:1])), x, (P(), P())),
        array((8, 16), bf16),
    )
    dump.save(
        "psum_mixed",
        mapped(lambda v, w: (psum(v), psum(w)), (x, x), (P(), P())),
        array((8, 16), bf16),
        array((8, 16)),
    )
    dump.save(
        "psum_16_apart",
        mapped(
            lambda v: tuple(psum(v * k) for k in range(1, 17)),
            x,
            (P(),) * 16,
            compiler_options={"xla_disable_hlo_passes": "cpu-all-reduce-combiner"},
        ),
        array((8, 16)),
    )

    def over_axes(v: Any) -> Any:
        return (
            lax.psum(v, "a"),
            lax.psum(v, "b"),
            lax.psum(v, ("a", "b")),
            lax.psum(v, ("b", "a")),
        )

    axes_out = (P(None, "b"), P("a"), P(), P())
    dump.save("psum_axes", mapped(over_axes, P("a", "b"), axes_out, square), array((8, 16)))
    dump.save(
        "psum_axes_permuted", mapped(over_axes, P("a", "b"), axes_out, permuted), array((8, 16))
    )
    dump.save(
        "psum_bf16_inside",
        mapped(lambda v: lax.psum(jnp.sin(v) * 2, "x") + 1, x, P()),
        array((8, 16), bf16),
    )
    dump.save(
        "psum_bf16_read_in_f32",
        mapped(lambda v: psum(v).astype(f32) * 0.3, x, P()),
        array((8, 16), bf16),
    )
    dump.save(
        "psum_bf16_moved",
        mapped(lambda v: psum(v[:, ::-1].T.reshape(4, 8))[1:3, ::2] + 1, x, P()),
        array((8, 16), bf16),
    )

    scattered = partial(lax.psum_scatter, axis_name="x", tiled=True)
    dump.save("psum_scatter", mapped(scattered, P(), x), array((8, 16)))
    dump.save("psum_scatter_bf16", mapped(scattered, P(), x), array((8, 16), bf16))
    dump.save(
        "psum_scatter_second",
        mapped(partial(scattered, scatter_dimension=1), P(), P(None, "x")),
        array((8, 16)),
    )
    dump.save(
        "psum_scatter_axes",
        mapped(lambda v: lax.psum_scatter(v, ("b", "a"), tiled=True), P(), P(("b", "a")), square),
        array((16, 16)),
    )

    dump.save("pmap", jax.pmap(psum, axis_name="x", devices=list(devices[:4])), array((4, 16)))
    dump.save(
        "pmap_groups",
        jax.pmap(
            lambda v: lax.psum(v, "x", axis_index_groups=[[0, 3], [1, 2]]),
            axis_name="x",
            devices=list(devices[:4]),
        ),
        array((4, 16)),
    )

    dump.save(
        "psum_scan",
        mapped(
            lambda v: lax.scan(lambda c, _: (psum(c * 0.5) * 0.25 + c, None), v, None, length=4)[0],
            x,
            x,
        ),
        array((8, 16)),
    )
    dump.save(
        "psum_while",
        mapped(
            lambda v: lax.while_loop(
                lambda c: c[0] < 3, lambda c: (c[0] + 1, psum(c[1]) * 0.1 + c[1]), (0, v)
            )[1],
            x,
            x,
        ),
        array((8, 16)),
    )
    dump.save(
        "psum_cond",
        mapped(lambda p, v: lax.cond(p, psum, lambda w: psum(w * 2), v), (P(), x), P()),
        array((), jnp.bool_),
        array((8, 16)),
    )

    def marked(choice: str, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(v: Any) -> Any:
            with set_xla_metadata(tersum=choice):
                return body(v)

        return run

    for name, choice in (("int4", "int4/32"), ("off", "off"), ("exact", "exact"), ("bad", "int7")):
        dump.save(f"psum_choice_{name}", mapped(marked(choice, psum), x, P()), array((8, 16)))
    dump.save("psum_choice_bf16", mapped(marked("int4", psum), x, P()), array((8, 16), bf16))
    dump.save(
        "psum_choice_combined",
        mapped(
            lambda v: (marked("int4", psum)(v), marked("off", psum)(v * 2), psum(v * 3)),
            x,
            (P(), P(), P()),
        ),
        array((8, 16)),
    )
    dump.save(
        "psum_choice_swept",
        mapped(lambda v: (marked("int4", psum)(v), psum(v * 3)), x, (P(), P())),
        array((8, 16)),
    )
    dump.save(
        "matmul_choice",
        jax.jit(
            lambda a, b: marked("int4", lambda w: a @ w)(b),
            in_shardings=(NamedSharding(line, P(None, "x")), NamedSharding(line, P("x", None))),
            out_shardings=NamedSharding(line, P()),
        ),
        array((8, 32)),
        array((32, 16)),
    )
    dump.save("donated", mapped(lambda v: psum(v) + v, x, x, donate_argnums=0), array((8, 16)))


def dump_process(rank: int, port: int, folder: Path) -> None:
    """One of 2 processes with 2 devices each, on a mesh in permuted order."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    dump = Dumper(folder)
    if rank == 1:  # work of its own moves the process's module counter
        for k in range(3):
            jax.jit(lambda v, k=k: v + k).lower(1.0).compile()
    devices = jax.devices()
    mesh = Mesh(np.array([devices[i] for i in (2, 0, 3, 1)]).reshape(2, 2), ("a", "b"))
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32)

    def both(v: Any) -> Any:
        return lax.psum(v, "a"), lax.psum(v, "b")

    dump.save(
        f"two_processes_psum_rank{rank}",
        jax.jit(
            jax.shard_map(both, mesh=mesh, in_specs=P("a", "b"), out_specs=(P(None, "b"), P("a")))
        ),
        x,
    )
    dump.save(
        f"two_processes_matmul_rank{rank}",
        jax.jit(
            lambda a: a @ a.T,
            in_shardings=NamedSharding(mesh, P(None, "a")),
            out_shardings=NamedSharding(mesh, P()),
        ),
        x,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def child(arguments: list[str], devices: int, program: Path) -> subprocess.Popen[bytes]:
    environment = dict(
        os.environ,
        JAX_PLATFORMS="cpu",
        PYTHONPATH=str(HERE),
        XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}",
    )
    return subprocess.Popen([sys.executable, str(program), *arguments], env=environment)


def dump_jax() -> None:
    import jax

    folder = HERE / f"jax-{jax.__version__}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    program = Path(__file__)
    children = [child(["one-process", str(folder)], DEVICES, program)]
    # The two processes run copies with different names, so that what a module says about its
    # sources differs as it does between machines.
    port = str(free_port())
    copies = [folder / f"program_{rank}.py" for rank in range(2)]
    for rank, copy in enumerate(copies):
        shutil.copy(program, copy)
        children.append(child(["process", str(rank), port, str(folder)], 2, copy))
    failed = [running.wait() for running in children]
    for copy in copies:
        copy.unlink()
    if any(failed):
        raise SystemExit(f"a child failed: {failed}")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["one-process", folder]:
            dump_one_process(Path(folder))
        case ["process", rank, port, folder]:
            dump_process(int(rank), int(port), Path(folder))
        case ["jax"]:
            dump_jax()
        case ["handmade"]:
            import handmade_modules

            handmade_modules.write_all(HERE)
        case []:
            main(["jax"])
            main(["handmade"])
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
