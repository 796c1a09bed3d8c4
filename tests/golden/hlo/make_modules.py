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
    dump = Dumper(folder)
    import jax_programs

    jax_programs.save_all(dump.save)


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
