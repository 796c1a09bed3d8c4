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
#: 8 x 16, with factors of 96 channels, known in marks by their digest: no path is safe in one.
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "codec"
MATRICES = GOLDEN / "transforms" / "0982c0cfdb4747e8.txt"
MARKS = [
    "int4/32+hadamard",
    "int4/1024+sparse:0.2%",
    "int8+rows:1000",
    "mxfp8:e5m2+sparse:10%+hadamard+floor",
    "int4/128+hadamard+mixed",
    "int6/64+shiftadd",
    "sum8:tensor",
    "sum8/256",
    "int6/64+flatten",
    "int4/128+clip:learned",
    "kmeans:16/64",
    "int2/32+feedback",
    "int4/64+adaptive",
    "nf4/64+sr",
]
PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, PartitionSpec as P
import tersum.jax

mesh = Mesh(np.array(jax.devices()), ("x",))
x = jnp.asarray(np.random.default_rng(5).standard_normal((4, 50, 1000)), dtype=jnp.float32)

def summed(body):
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P()))
    # The second call has what the first has left: channels' sizes, a clip, what is owed.
    y = [np.asarray(jax.block_until_ready(f(x))) for _ in range(2)]
    return y[0].tobytes() + y[1].tobytes(), tersum.jax.report()[-1].codec

def psum(x):
    return jax.lax.psum(x, "x")

def marked(mark):
    def psum(x):  # of the same name: the random numbers of +sr are those of a place in a program
        with set_xla_metadata(tersum=mark):
            return jax.lax.psum(x, "x")
    return psum

def installed(codec, body):
    tersum.jax.uninstall()
    tersum.jax.install(codec=codec, local=True, min_bytes=0)
    jax.clear_caches()
    return summed(body)

matrices, *marks = sys.argv[1:]
tersum.codec_info(f"int8/128+kronecker:{matrices}")  # from here on known by their digest
exact, codec = installed("exact", psum)
assert codec == "exact", codec
for mark in marks:
    got = installed(mark, psum)
    by_mark = installed("exact", marked(mark))
    assert got == by_mark, (mark, got[1], by_mark[1])
    assert got[0] != exact, mark
    print("codec", got[1])
"""


def test_a_mark_reaches_the_call_as_its_codec(tmp_path: Path) -> None:
    table = tmp_path / "a table (of 4 levels) = thirds.txt"
    table.write_text("-0.75 -0.25 0.25 0.75")
    turned = codec_info(f"int8/128+kronecker:{MATRICES}").spec
    assert turned == f"int8/128+kronecker:{MATRICES.stem}"
    marks = [*MARKS, turned, f"table:{table}/32+sparse:0.5%"]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(MATRICES), *marks],
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
