"""Marks of operations, ``set_xla_metadata(tersum=...)``: whatever characters a spec has, the call
gets the codec that ``install()`` of the same spec would give it, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tersum
from tersum import _core
from tersum.codecs import codec_info

pytest.importorskip("jax")
if not _core.has_xla:
    pytest.skip("tersum was built without its JAX part", allow_module_level=True)

PACKAGE = str(Path(tersum.__file__).parents[1])
MARKS = [
    "int4/32+hadamard",
    "int4/1024+sparse:0.2%",
    "int8+rows:1000",
    "mxfp8:e5m2+sparse:10%+hadamard+floor",
    "int4/128+hadamard+mixed",
    "int6/64+shiftadd",
    "sum8:tensor",
]
PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, PartitionSpec as P
import tersum.jax

mesh = Mesh(np.array(jax.devices()), ("x",))
x = jnp.asarray(np.random.default_rng(5).standard_normal((4, 50_000)), dtype=jnp.float32)

def summed(body):
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P()))
    y = np.asarray(jax.block_until_ready(f(x)))
    return y.tobytes(), tersum.jax.report()[-1].codec

def marked(mark):
    def body(x):
        with set_xla_metadata(tersum=mark):
            return jax.lax.psum(x, "x")
    return body

marks = sys.argv[1:]
tersum.jax.install(codec="exact", local=True, min_bytes=0)
exact, codec = summed(lambda x: jax.lax.psum(x, "x"))
assert codec == "exact", codec
by_mark = {mark: summed(marked(mark)) for mark in marks}
for mark in marks:
    tersum.jax.uninstall()
    tersum.jax.install(codec=mark, local=True, min_bytes=0)
    jax.clear_caches()
    got = summed(lambda x: jax.lax.psum(x, "x"))
    assert got == by_mark[mark], (mark, got[1], by_mark[mark][1])
    assert got[0] != exact, mark
    print("codec", got[1])
"""


def test_a_mark_reaches_the_call_as_its_codec(tmp_path: Path) -> None:
    table = tmp_path / "a table (of 4 levels) = thirds.txt"
    table.write_text("-0.75 -0.25 0.25 0.75")
    marks = [*MARKS, f"table:{table}/32+sparse:0.5%"]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *marks],
        env={
            **os.environ,
            "PYTHONPATH": PACKAGE,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    expected = [f"codec {codec_info(mark).spec}" for mark in marks]
    assert ended.stdout.splitlines() == expected
