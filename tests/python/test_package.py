"""The package as a whole: names, versions, stubs, and the code that the documents show."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tersum
from tersum import _core

ROOT = Path(__file__).resolve().parents[2]


def test_every_public_name_is_there_and_documented() -> None:
    for name in tersum.__all__:
        value = getattr(tersum, name)
        if callable(value):
            assert value.__doc__, name


def test_versions() -> None:
    header = (ROOT / "include/tersum/version.h").read_text()
    assert f'#define TERSUM_VERSION "{tersum.__version__}"' in header
    assert f"kWireVersion = {tersum.wire_version};" in header


def test_isa_is_one_of_the_available() -> None:
    assert tersum.isa() in tersum.available_isas()
    assert tersum.available_isas()[-1] == "scalar"


def test_force_isa_is_obeyed() -> None:
    for isa in tersum.available_isas():
        done = subprocess.run(
            [sys.executable, "-c", "import tersum; print(tersum.isa())"],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": str(Path(tersum.__file__).parent.parent), "TERSUM_FORCE_ISA": isa},
        )
        assert done.stdout.strip() == isa


def test_force_isa_refuses_what_there_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tersum", "info"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(tersum.__file__).parent.parent), "TERSUM_FORCE_ISA": "mmx"},
    )
    assert done.returncode == 1 and "mmx" in done.stderr and "scalar" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_tersum_imports_neither_jax_nor_torch() -> None:
    script = "import sys, tersum; print({'jax', 'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(tersum.__file__).parent.parent)},
    )
    assert done.stdout.strip() == "set()"


def _stub_names(tree: ast.Module) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {"": set()}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names[""].add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[""].add(node.target.id)
        elif isinstance(node, ast.ClassDef):
            functions = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
            names[node.name] = {name for name in functions if not name.startswith("_")}
    return names


def test_the_stub_says_what_the_extension_has() -> None:
    stub = ast.parse((ROOT / "python/tersum/_core.pyi").read_text())
    names = _stub_names(stub)
    own = {name for name in dir(_core) if not name.startswith("_")}
    assert names.pop("") | set(names) == own - {"xla"}
    for name, methods in names.items():
        real = {m for m in vars(getattr(_core, name)) if not m.startswith("_")}
        assert methods == real, name


def test_the_stub_has_the_extensions_parameters() -> None:
    stub = ast.parse((ROOT / "python/tersum/_core.pyi").read_text())
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not _is_special(method):
                    _check_parameters(getattr(getattr(_core, node.name), method.name), method)
        elif isinstance(node, ast.FunctionDef):
            _check_parameters(getattr(_core, node.name), node)


def _is_special(method: ast.FunctionDef) -> bool:
    return method.name.startswith("_") or any(
        (isinstance(d, ast.Name) and d.id == "property")
        or (isinstance(d, ast.Attribute) and d.attr == "setter")
        for d in method.decorator_list
    )


def _check_parameters(function: Any, node: ast.FunctionDef) -> None:
    # nanobind begins each docstring with the signature.
    signature = (function.__doc__ or "").split("->")[0]
    for argument in node.args.args:
        if argument.arg != "self":
            assert re.search(rf"\b{argument.arg}:", signature), (node.name, argument.arg)


SNIPPETS = [
    (path.name, number, code)
    for path in (ROOT / "docs/python.md", ROOT / "docs/footguns.md")
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S) if path.exists() else []
    )
]


@pytest.mark.parametrize(
    "snippet", SNIPPETS, ids=[f"{name}-{number}" for name, number, _ in SNIPPETS]
)
def test_the_documents_code_runs(snippet: tuple[str, int, str], tmp_path: Path) -> None:
    """Every block runs as one rank of a group of two: `rank`, `size` and `url` are given."""
    _, _, code = snippet
    script = tmp_path / "snippet.py"
    script.write_text(f"import sys\nrank, size, url = int(sys.argv[1]), 2, sys.argv[2]\n{code}")
    children = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), f"file://{tmp_path}/store"],
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(Path(tersum.__file__).parent.parent), "PATH": "/usr/bin:/bin"},
        )
        for rank in range(2)
    ]
    for child in children:
        _, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
