"""tersum.jax.capture() in one process of four devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum
from tersum import _core
from tersum._captured_calls import read_capture

pytest.importorskip("jax")
if not _core.has_xla:
    pytest.skip("tersum was built without its JAX part", allow_module_level=True)

DEVICES = 4
PRELUDE = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P
import tersum, tersum.jax
directory = sys.argv[1]
mesh = Mesh(np.array(jax.devices()), ("x",))
def program(body):
    specs = dict(in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return jax.jit(jax.shard_map(body, mesh=mesh, **specs))
def data(*shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(7).standard_normal(shape), dtype)
def refused(function):
    try:
        function()
    except tersum.InvalidArgumentError as error:
        print("refused:", error)
"""


def run(code: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(code), str(directory)],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(tersum.__file__).parents[1]),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries_of(directory: Path) -> tuple[Path, list[dict[str, Any]]]:
    (index,) = directory.glob("*/index.json")
    return index.parent, json.loads(index.read_text())["calls"]


def test_loops_operands_and_types(tmp_path: Path) -> None:
    output = run(
        """
        tersum.jax.install("int8/32", min_bytes=0, local=True)
        def body(x, y):
            def step(carry, _):
                return lax.psum(0.5 * carry, "x"), None
            x, _ = lax.scan(step, x, None, length=3)
            return x, lax.psum_scatter(y, "x", scatter_dimension=0, tiled=True)
        x, y = data(4 * 2, 96), data(4 * 8, 5, dtype=jnp.bfloat16)
        f = program(body)
        jax.block_until_ready(f(x, y))
        with tersum.jax.capture(directory, calls=2) as recording:
            for _ in range(3):
                first, second = jax.block_until_ready(f(x, y))
        print(recording.stop())
        np.save(directory + "/x.npy", np.asarray(x))
        np.save(directory + "/first.npy", np.asarray(first))
        """,
        tmp_path,
    )
    folder, entries = entries_of(tmp_path)
    # Three iterations of the loop and one reduce-scatter, twice, on each device.
    assert len(entries) == 4 * 2 * DEVICES
    assert f"left out: {4 * DEVICES} beyond calls=" in output
    loop = [entry for entry in entries if entry["collective"] == "all_reduce"]
    assert {entry["occurrence"] for entry in loop} == {0, 1, 2}
    assert len({entry["id"] for entry in loop}) == 3
    assert {(entry["channels"], entry["count"], entry["codec"]) for entry in loop} == {
        (96, 192, "int8/32")
    }
    assert all(entry["source"].endswith("psum") for entry in loop)
    given = np.load(tmp_path / "x.npy")
    for entry in loop:
        stored = np.load(folder / entry["input"])
        if entry["occurrence"] == 0:
            rank = entry["rank"]
            assert stored.tobytes() == (given[2 * rank : 2 * rank + 2] * np.float32(0.5)).tobytes()
        if entry["occurrence"] == 2 and entry["rank"] == 0:
            total = np.load(folder / entry["sum"])
            assert total.tobytes() == np.load(tmp_path / "first.npy")[:2].tobytes()
        assert bool(entry["sum"]) == (entry["rank"] == 0)
    scattered = [entry for entry in entries if entry["collective"] == "reduce_scatter"]
    assert all(entry["sum"] and entry["channels"] == 5 for entry in scattered)
    sites = read_capture(tmp_path)
    assert sorted(len(site.calls) for site in sites) == [2, 2, 2, 2]
    for site in sites:
        for inputs in site.inputs(DEVICES):
            assert np.isfinite(inputs).all() and inputs.any()


def test_bytes_are_bounded(tmp_path: Path) -> None:
    run(
        """
        tersum.jax.install("exact", min_bytes=0, local=True)
        f = program(lambda x: lax.psum(x, "x"))
        with tersum.jax.capture(directory, calls=100, max_bytes=300_000) as recording:
            for _ in range(20):
                jax.block_until_ready(f(data(4 * 1024, 4)))
        summary = recording.stop()
        assert summary.beyond_bytes > 0 and 0 < summary.file_bytes <= 300_000, summary
        """,
        tmp_path,
    )
    folder, _ = entries_of(tmp_path)
    assert sum(path.stat().st_size for path in folder.glob("*.npy")) <= 300_000


def test_a_program_that_forgets_to_stop_has_its_index(tmp_path: Path) -> None:
    run(
        """
        tersum.jax.install("exact", min_bytes=0, local=True)
        tersum.jax.capture(directory).start()
        jax.block_until_ready(program(lambda x: lax.psum(x, "x"))(data(4, 64)))
        """,
        tmp_path,
    )
    assert len(entries_of(tmp_path)[1]) == DEVICES


def test_refusals_name_the_remedy(tmp_path: Path) -> None:
    output = run(
        """
        refused(tersum.jax.capture(directory).start)
        tersum.jax.install("exact", min_bytes=0, local=True)
        open(directory + "/file", "w").close()
        refused(tersum.jax.capture(directory + "/file/below").start)
        with tersum.jax.capture(directory + "/a"):
            refused(tersum.jax.capture(directory + "/b").start)
        refused(tersum.jax.capture(directory + "/a").start)
        """,
        tmp_path,
    )
    lines = output.splitlines()
    assert len(lines) == 4
    words = ("call tersum.jax.install() first", "choose a directory", "stop it first", "holds a")
    for line, word in zip(lines, words, strict=True):
        assert line.startswith("refused:") and word in line


def test_a_disk_that_takes_no_more_is_an_error_at_the_end(tmp_path: Path) -> None:
    output = run(
        """
        tersum.jax.install("exact", min_bytes=0, local=True)
        f = program(lambda x: lax.psum(x, "x"))
        recording = tersum.jax.capture(directory)
        recording.start()
        save = np.save
        def full(*arguments, **options):
            raise OSError(28, "No space left on device")
        np.save = full
        for _ in range(3):
            jax.block_until_ready(f(data(4, 64)))
        try:
            recording.stop()
        except tersum.SystemCallError as error:
            print(error)
        np.save = save
        with tersum.jax.capture(directory + "/next"):
            jax.block_until_ready(f(data(4, 64)))
        """,
        tmp_path,
    )
    assert "No space left on device; make room, or lower max_bytes" in output
    assert len(entries_of(tmp_path / "next")[1]) == DEVICES
