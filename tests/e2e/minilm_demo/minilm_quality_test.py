"""The table of quality against bits: what it says of a few specs in small, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "minilm_demo" / "quality.py"
pytest.importorskip("tersum.jax", reason="tersum is not installed with its JAX part")

SPECS = [
    *("bf16", "int8/128", "int8/128+flatten", "int4/128", "int4/128+flatten", "int2/32"),
    *("int6/128+hadamard", "int6/128+flatten", "int5/128+flatten", "nf4/64+flatten"),
    *("nf4/64", "table:FILE/64", "kmeans:16/64", "int4/128+kronecker:FILE"),
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )


@pytest.mark.parametrize(("ranks", "six_bits"), [(2, 0.99972), (4, 0.99966)])
def test_specs_come_out_in_their_order(ranks: int, six_bits: float, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run(
        *("--ranks", str(ranks), "--specs", ",".join(SPECS), "--out", str(tmp_path)),
        *("--batches", "3", "--batch-size", "8", "--tokens", "64"),
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    rows = json.loads((tmp_path / f"quality_{ranks}.json").read_text())
    found = {row["spec"]: row for row in rows}
    assert [row["spec"] for row in rows] == SPECS
    assert {row["ranks"] for row in rows} == {ranks}
    assert found["bf16"]["bits"] == 16
    assert found["int8/128"]["bits"] == pytest.approx(8.125)
    assert found["int2/32"]["bits"] == pytest.approx(2.5)
    assert {found[spec]["bits"] for spec in ("table:FILE/64", "kmeans:16/64")} == {4.25}
    for kind in ("error", "cosine_mean", "cosine_least"):
        values = {spec: row[kind] for spec, row in found.items()}
        losses = values if kind == "error" else {spec: 1 - v for spec, v in values.items()}
        assert losses["bf16"] < losses["int8/128"] < losses["int4/128"] < losses["int2/32"], kind
        assert losses["int4/128+flatten"] < 0.7 * losses["int4/128"], kind
        assert losses["int8/128+flatten"] < 0.7 * losses["int8/128"], kind
        # What is learned from the first batch serves those after it.
        assert losses["int4/128+kronecker:FILE"] < 0.8 * losses["int4/128"], kind
    # The bars of the full run, which test_demo_quality.py holds, of batches a quarter of its size.
    turned, flattened = (found[f"int6/128+{way}"]["error"] for way in ("hadamard", "flatten"))
    assert flattened <= 0.93 * turned
    assert found["int8/128+flatten"]["cosine_mean"] >= 0.99997
    assert found["int6/128+flatten"]["cosine_mean"] >= six_bits
    assert found["bf16"]["bits"] / found["int6/128+flatten"]["bits"] >= 2.5
    assert found["int5/128+flatten"]["cosine_mean"] >= 0.9984
    assert found["nf4/64+flatten"]["bits"] <= 4.5
    assert found["nf4/64+flatten"]["cosine_mean"] >= 0.9955
    assert found["int8/128"]["cosine_mean"] > 0.999
    assert all(row["cosine_least"] <= row["cosine_mean"] <= 1.000001 for row in rows)
    # One line of the table for each, and a picture that can be read.
    assert sum(line.startswith("| ") for line in done.stdout.splitlines()) == 1 + len(SPECS)
    picture = ElementTree.parse(tmp_path / f"quality_{ranks}.svg").getroot()
    assert picture.tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ranks", "5"), "invalid choice: 5"),
        (("--batches", "1"), "--batches must be 2 or more"),
        (("--specs", "int8/128,int4+hadamart"), "hadamart"),
        (("--specs", "kmeans:16/65"), "65"),
        (("--specs", "int8/128", "--write", "docs"), "--write is for all specs"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    arguments: tuple[str, str], said: str
) -> None:
    done = run(*arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert "cosine" not in done.stdout
