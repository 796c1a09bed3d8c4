"""Sizes and names: files, functions, lines; file names unique in the tree."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator

from tidy_tree import Finding, SourceFile, Tree

FILE_LINES_WARN = 500
FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

#: Names that a tool gives a meaning in every folder.
REPEATABLE_NAMES = {
    "CMakeLists.txt",
    "README.md",
    "__init__.py",
    "__main__.py",
    "conftest.py",
    "py.typed",
}


def check_file_sizes(tree: Tree) -> Iterator[Finding]:
    for file in tree.files:
        if not (file.is_cpp or file.is_python or file.is_script):
            continue
        count = len(file.lines) - 1
        if count > FILE_LINES_WARN:
            yield Finding(
                file.path,
                0,
                "file-size",
                f"{count} lines; split it (aim at 100 to 300, at most {FILE_LINES_MAX})",
                fatal=count > FILE_LINES_MAX,
            )


def check_line_lengths(tree: Tree) -> Iterator[Finding]:
    for file in tree.files:
        if not (file.is_cpp or file.is_python or file.is_script):
            continue
        for number, line in enumerate(file.lines, 1):
            if len(line) > COLUMNS_MAX and "://" not in line:
                message = f"{len(line)} columns, more than {COLUMNS_MAX}"
                yield Finding(file.path, number, "columns", message)


def check_function_sizes(tree: Tree) -> Iterator[Finding]:
    for file in tree.python:
        yield from _long_python_functions(file)
    yield from _long_cpp_functions(tree)


def check_unique_names(tree: Tree) -> Iterator[Finding]:
    paths = defaultdict(list)
    for file in tree.files:
        if file.name not in REPEATABLE_NAMES:
            paths[file.name].append(file.path)
    for name, owners in paths.items():
        for path in owners[1:]:
            yield Finding(path, 0, "unique-names", f"{name} exists already: {owners[0]}")


def _too_long(path: str, line: int, name: str, count: int) -> Finding:
    message = f"{name} has {count} lines, more than {FUNCTION_LINES_MAX}; split it"
    return Finding(path, line, "function-size", message)


def _long_python_functions(file: SourceFile) -> Iterator[Finding]:
    try:
        module = ast.parse(file.text)
    except SyntaxError as error:
        yield Finding(file.path, error.lineno or 0, "syntax", f"does not parse: {error.msg}")
        return
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield _too_long(file.path, node.lineno, node.name, count)


def _long_cpp_functions(tree: Tree) -> Iterator[Finding]:
    paths = [file.path for file in tree.cpp]
    if not paths:
        return
    if shutil.which("ctags") is None:
        yield Finding(".", 0, "function-size", "ctags is missing: install universal-ctags")
        return
    command = ["ctags", "--output-format=u-ctags", "-f", "-", "--sort=no", "--excmd=number"]
    command += ["--fields=ne", "--kinds-C=f", "--kinds-C++=f", "--map-C++=+.h", "--map-C++=+.cu"]
    # Feed the paths on standard input: a long list does not fit on a command line.
    listing = subprocess.run(
        [*command, "-L", "-"],
        input="\n".join(paths),
        cwd=tree.root,
        capture_output=True,
        text=True,
        check=True,
    )
    for row in listing.stdout.splitlines():
        if row.startswith("!_"):
            continue
        name, path, _, *fields = row.split("\t")
        numbers = dict(field.split(":", 1) for field in fields if ":" in field)
        if "end" not in numbers:
            continue
        first, last = int(numbers["line"]), int(numbers["end"])
        if last - first + 1 > FUNCTION_LINES_MAX:
            yield _too_long(path, first, name, last - first + 1)
