"""Every Python block of the README and of docs/ runs as it stands, so that none can rot."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tersum
from tersum import _core

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(tersum.__file__).parents[1])
RANKS = 2
# The address of an example, which is nobody's here.
EXAMPLE_STORE = re.compile(r'"tcp://10\.[^"]*"')


class Snippet(NamedTuple):
    """One block; ``where`` is the file and the line at which its code begins."""

    where: str
    code: str

    @property
    def needs_jax(self) -> bool:
        return "jax" in self.code


def snippets(path: Path) -> Iterator[Snippet]:
    """The blocks that are marked as Python."""
    block: list[str] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if block is None:
            if line.strip() == "```python":
                block, begin = [], number + 1
        elif line.strip() == "```":
            where = f"{path.relative_to(ROOT)}:{begin}"
            yield Snippet(where, textwrap.dedent("\n".join(block)) + "\n")
            block = None
        else:
            block.append(line)


SNIPPETS = [
    snippet
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for snippet in snippets(path)
]
OF_GROUPS = [snippet for snippet in SNIPPETS if not snippet.needs_jax]
OF_JAX = [snippet for snippet in SNIPPETS if snippet.needs_jax]


def test_the_blocks_are_found() -> None:
    found = {snippet.where.split(":")[0] for snippet in SNIPPETS}
    assert {"README.md", "docs/python.md", "docs/jax.md"} <= found
    assert len(OF_GROUPS) >= 5 and len(OF_JAX) >= 4


@pytest.mark.parametrize("snippet", OF_GROUPS, ids=lambda snippet: snippet.where)
def test_blocks_of_groups(snippet: Snippet, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    code = compile(EXAMPLE_STORE.sub("url", snippet.code), snippet.where, "exec")

    def rank_main(rank: int) -> dict[str, Any]:
        # What a block leaves to its reader: where the group meets, who one is, and some data.
        names = {
            **{"tersum": tersum, "np": np, "rank": rank, "size": RANKS, "url": url},
            "gradients": np.full(1000, rank + 1.0, np.float32),
        }
        exec(code, names)
        return names

    with ThreadPoolExecutor(RANKS) as pool:
        results = [
            future.result(60) for future in [pool.submit(rank_main, r) for r in range(RANKS)]
        ]
    for name in ("total", "exact", "result"):
        if name in results[0]:
            assert results[0][name].tobytes() == results[1][name].tobytes(), name


JAX_MAIN = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
import tersum.jax

def sum_with(code, where):
    def body(x):
        names = {"jax": jax, "tersum": tersum, "x": x}
        exec(compile(code, where, "exec"), names)
        return names["y"]
    mesh = Mesh(np.array(jax.devices()), ("x",))
    x = jnp.asarray(np.random.default_rng(5).standard_normal((4, 20_000)), dtype=jnp.float32)
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P()))
    want = np.asarray(x).astype(np.float64).sum(0)
    error = np.linalg.norm(np.asarray(jax.block_until_ready(f(x)))[0] - want) / np.linalg.norm(want)
    assert error < 0.2, (where, error)

for where, code in SNIPPETS:
    if "install()" in code:
        exec(compile(code, where, "exec"), {})
        assert tersum.jax.installed()
        tersum.jax.uninstall()
    else:
        # As above, but so that a group within this process is not left to XLA.
        tersum.jax.install(local=True, min_bytes=0)
        sum_with(code, where)
    print("ran", where)
codecs = [row.travels_as for row in tersum.jax.report()]
print("codecs", codecs)
"""


def test_blocks_of_jax() -> None:
    pytest.importorskip("jax")
    if not _core.has_xla:
        pytest.skip("tersum was built without its JAX part")
    done = subprocess.run(
        [sys.executable, "-c", f"SNIPPETS = {[tuple(s) for s in OF_JAX]!r}\n" + JAX_MAIN],
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
    assert done.returncode == 0, done.stdout + done.stderr
    for snippet in OF_JAX:
        assert f"ran {snippet.where}" in done.stdout
    assert "int4/32" in done.stdout and "int8/32" in done.stdout
