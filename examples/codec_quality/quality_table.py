"""What every format does to the tensors of three small models, as docs/codec-quality.md shows it.

    python examples/codec_quality/quality_table.py [--write docs] [--keep FOLDER] [--codec SPECS]

Runs `captured_programs.py` and `captured_embeddings.py`, ranks specs with `tersum tune-codec
--json`, all that it tries by itself and those of `table_specs.py`, and prints a table: error (body
error) per spec and kind of tensor. `--write` puts it, and a JSON file, into the docs. Takes about
ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import table_specs

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True)
class Kind:
    """Tensors of one kind: the sites of a capture whose source satisfies ``takes``."""

    name: str
    capture: str
    takes: Callable[[str], bool]


def is_table(source: str) -> bool:
    return "gradientsymbols" in source or "gradientpositions" in source


KINDS = (
    Kind("weight gradients", "text", lambda source: not is_table(source)),
    Kind("embedding gradients", "text", is_table),
    Kind("word embeddings", "embeddings", lambda source: "lookup" in source),
    Kind("sentence embeddings", "embeddings", lambda source: "pool" in source),
    Kind("activations", "images", lambda source: True),
)
CAPTURES = tuple(dict.fromkeys(kind.capture for kind in KINDS))
#: Each program, and the example whose model it takes.
PROGRAMS = (("captured_programs.py", "train_demo"), ("captured_embeddings.py", "minilm_demo"))


def capture(folder: Path) -> None:
    """In processes of their own: JAX counts devices once."""
    for program, model in PROGRAMS:
        path = [str(HERE.parent / model), os.environ.get("PYTHONPATH", "")]
        environment = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, str(HERE / program), str(folder)]
        subprocess.run(command, check=True, env={**os.environ, **environment})


def tune(folder: Path, name: str, codec: str | None) -> dict[str, Any]:
    """The ranking of one capture: of the specs in ``codec``, or of all."""
    words = ["tune-codec", "--capture", str(folder / name), "--json"]
    if codec is None:
        found: dict[str, Any] = json.loads(table_specs.command(words))
        specs = table_specs.SPECS
    else:
        found, specs = {"specs": []}, codec.split(",")
    # By the names of the list: what a file holds has another name for each capture.
    names = {table_specs.learn(spec, folder / "before" / name): spec for spec in specs}
    asked = json.loads(table_specs.command([*words, "--codec", ",".join(names)]))
    rows = [row | {"spec": name_of(row["spec"], names)} for row in asked["specs"]]
    return asked | {"specs": found["specs"] + rows}


def name_of(spec: str, names: dict[str, str]) -> str:
    """The normal form, but for what is learned."""
    return names[spec] if "table:" in spec or "kronecker:" in spec else spec


def summarize(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means over sites, which have as many calls each."""
    kinds: dict[str, Any] = {}
    for kind in KINDS:
        ranking = found[kind.capture]
        chosen = [site for site in ranking["sites"] if kind.takes(site["source"])]
        kinds[kind.name] = {
            "sites": len(chosen),
            "calls": sum(site["calls"] for site in chosen),
            "values": sum(site["count"] * site["calls"] for site in chosen),
            "specs": {row["spec"]: _row(row, chosen) for row in ranking["specs"]},
        }
    return {"ranks": found["text"]["ranks"], "kinds": kinds}


def _row(row: dict[str, Any], sites: list[dict[str, Any]]) -> dict[str, float]:
    of_sites = [row["sites"][site["site"]] for site in sites]
    means = {
        name: float(np.mean([errors[name] for errors in of_sites]))
        for name in ("error", "body", "outliers")
    }
    return {name: float(f"{value:.5g}") for name, value in ({"bits": row["bits"]} | means).items()}


def markdown(summary: dict[str, Any]) -> str:
    """One row per spec, fewest bits first; bold where no other has less error at no more bits."""
    kinds = summary["kinds"]
    specs = next(iter(kinds.values()))["specs"]
    order = sorted(specs, key=lambda spec: (round(specs[spec]["bits"], 2), spec))
    lines = [
        "| spec | bits | " + " | ".join(kinds) + " |",
        "|---|---|" + "---|" * len(kinds),
    ]
    fronts = {name: _front(kind["specs"]) for name, kind in kinds.items()}
    for spec in order:
        cells = []
        for name, kind in kinds.items():
            row = kind["specs"][spec]
            error = f"{row['error']:.4f}" if row["error"] < 0.1 else f"{row['error']:.3f}"
            body = f"{row['body']:.4f}" if row["body"] < 0.1 else f"{row['body']:.3f}"
            cells.append(f"**{error}** ({body})" if spec in fronts[name] else f"{error} ({body})")
        lines.append(f"| {spec} | {specs[spec]['bits']:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _front(specs: dict[str, dict[str, float]]) -> set[str]:
    front, best = set(), float("inf")
    for spec in sorted(
        specs, key=lambda spec: (round(specs[spec]["bits"], 2), specs[spec]["error"])
    ):
        if specs[spec]["error"] < best:
            best = specs[spec]["error"]
            front.add(spec)
    return front


def write(docs: Path, summary: dict[str, Any], table: str) -> None:
    """Into codec-quality.json, and between the marks of codec-quality.md."""
    (docs / "codec-quality.json").write_text(json.dumps(summary, indent=1) + "\n")
    page = docs / "codec-quality.md"
    text = page.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="the docs folder to update")
    parser.add_argument("--keep", type=Path, help="captures are kept here, and taken from here")
    parser.add_argument("--codec", help="specs with commas between (default: all)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep if args.keep is not None else Path(scratch)
        if not all((folder / name).is_dir() for name in CAPTURES):
            capture(folder)
        found = {name: tune(folder, name, args.codec) for name in CAPTURES}
    summary = summarize(found)
    table = markdown(summary)
    print(table)
    for name, kind in summary["kinds"].items():
        outliers = next(iter(kind["specs"].values()))["outliers"]
        print(
            f"{name}: {kind['calls']} calls of {kind['sites']} sites, {kind['values']} values, "
            f"{outliers:.3%} of them outliers"
        )
    if args.write is not None:
        write(args.write, summary, table)


if __name__ == "__main__":
    main()
