"""The layer table: who may include whom. docs/layers.md explains each layer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tidy_tree import Finding, SourceFile, Tree

PUBLIC = "include/tersum"
#: Everything below the runtime, the layers it composes.
BELOW_RUNTIME = (
    "src/base",
    "src/platform",
    "src/wire",
    "src/codec",
    "src/codec/kernels",
    "src/plan",
    "src/transport",
    "src/membership",
)

#: Layer -> the layers it may include, besides itself and the public headers.
LAYERS: dict[str, tuple[str, ...]] = {
    PUBLIC: (),
    "src/base": (),
    "src/platform": ("src/base",),
    "src/wire": ("src/base",),
    "src/codec/kernels": ("src/base",),
    "src/codec": ("src/base", "src/wire", "src/codec/kernels"),
    "src/plan": ("src/base",),
    "src/transport": ("src/base", "src/platform", "src/wire"),
    "src/membership": ("src/base", "src/wire"),
    "src/runtime": BELOW_RUNTIME,
    "src/capi": (*BELOW_RUNTIME, "src/runtime"),
    # Of the base it may use checks, bytes and the log; of the layers between, nothing.
    "src/xla": ("src/base", "src/runtime"),
    "python": ("src/xla",),
    "tools": (),
    "examples": (),
}
#: Folders that may include anything of the tree.
FREE = ("bench", "tests")


@dataclass(frozen=True)
class External:
    """Headers from outside, and the only folders that may include them."""

    pattern: re.Pattern[str]
    folders: tuple[str, ...]


EXTERNALS = (
    External(re.compile(r"hwy/"), ("src/codec/kernels",)),
    External(re.compile(r"\w*intrin\.h$|arm_neon\.h$"), ("src/codec/kernels", "src/platform")),
    External(re.compile(r"protozero/"), ("src/xla",)),
    External(re.compile(r"xla/"), ("src/xla",)),
    External(re.compile(r"nanobind/|numpy/|Python\.h$"), ("python",)),
    External(re.compile(r"fmt/"), ("src", "tools", "python")),
    External(re.compile(r"xxhash\.h$"), ("src",)),
    External(re.compile(r"CLI/"), ("tools",)),
    External(re.compile(r"nlohmann/"), ("src/plan", "tools")),
    # The data path of TCP: what is gathered into one system call is the transport's own choice.
    External(re.compile(r"sys/(socket|uio)\.h$"), ("src/platform", "src/transport/tcp")),
    External(
        re.compile(r"(sys|netinet|arpa|net|linux)/|(unistd|fcntl|poll|netdb|ifaddrs|sched|pthread|"
                   r"dlfcn|signal|time)\.h$"),
        ("src/platform",),
    ),
)  # fmt: skip

#: Python packages that tersum works without; each may have a folder of its own in the package.
OPTIONAL_PACKAGES = {"jax", "jaxlib", "torch", "matplotlib"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STANDARD = re.compile(r"^(c?[a-z_0-9]+|(stdint|stddef|stdbool|limits)\.h)$")


def layer_of(path: str) -> str | None:
    """The layer that owns ``path``: the longest row of the table that contains it."""
    owners = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(owners, key=len) if owners else None


def check_layers(tree: Tree) -> Iterator[Finding]:
    """Every include of every C++ file against the table."""
    known = {file.path for file in tree.files}
    for file in tree.cpp:
        layer = layer_of(file.path)
        if layer is None:
            if not file.in_folder(*FREE):
                yield Finding(file.path, 0, "layers", "this folder is in no row of the layer table")
            continue
        for number, line in enumerate(file.without_comments, 1):
            match = INCLUDE.match(line)
            if match:
                problem = _problem(file, layer, match[1], match[2], known)
                if problem:
                    yield Finding(file.path, number, "layers", problem)


def _problem(
    file: SourceFile, layer: str, opening: str, header: str, known: set[str]
) -> str | None:
    """What is wrong with this include, or None."""
    target = _resolve(file, header, known)
    if target is not None:
        if opening == "<":
            return f'write #include "{header}": it is a header of this tree'
        return _tree_problem(layer, target)
    for external in EXTERNALS:
        if external.pattern.match(header):
            if any(file.path.startswith(folder + "/") for folder in external.folders):
                return None
            return f"<{header}> may be included only in {', '.join(external.folders)}"
    if opening == "<" and STANDARD.match(header):
        return None
    return f"{header} is neither in this tree nor an allowed dependency"


def _resolve(file: SourceFile, header: str, known: set[str]) -> str | None:
    for candidate in (f"include/{header}", f"src/{header}", f"{file.folder}/{header}", header):
        if candidate in known:
            return candidate
    return None


def _tree_problem(layer: str, target: str) -> str | None:
    owner = layer_of(target)
    if owner in (layer, PUBLIC):
        return None
    if owner in LAYERS[layer]:
        return None
    allowed = ", ".join((PUBLIC, *LAYERS[layer]))
    return f"{layer} may include {allowed}; {target} belongs to {owner or 'no layer'}"


def check_header_openings(tree: Tree) -> Iterator[Finding]:
    """A header opens with a comment that says what the thing is, and is included once."""
    for file in tree.cpp:
        if not file.path.endswith(".h"):
            continue
        if not file.text.startswith(("//", "/*")):
            message = "the first line must say what this header is for (then: thread safety)"
            yield Finding(file.path, 1, "header-opening", message)
        # Highway includes kernels once per target, and C99 knows no pragma once.
        guards_itself = file.path.endswith(("-inl.h", "include/tersum/tersum.h"))
        if "#pragma once" not in file.lines and not guards_itself:
            yield Finding(file.path, 1, "header-opening", "#pragma once is missing")


def check_python_imports(tree: Tree) -> Iterator[Finding]:
    """``import tersum`` must not need jax, torch or matplotlib: they are imported where used."""
    for file in tree.python:
        if not file.in_folder("python/tersum"):
            continue
        try:
            module = ast.parse(file.text)
        except SyntaxError:
            continue  # check_function_sizes reports it
        for node in module.body:
            for package in _imported_packages(node):
                if package in OPTIONAL_PACKAGES and not file.in_folder(f"python/tersum/{package}"):
                    message = f"import {package} inside the function that needs it: it is optional"
                    yield Finding(file.path, node.lineno, "optional-import", message)


def _imported_packages(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name.split(".")[0] for name in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [(node.module or "").split(".")[0]]
    return []
