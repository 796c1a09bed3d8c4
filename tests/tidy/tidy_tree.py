"""The tree as the tidy rules see it: its files, their text, and C++ with comments blanked out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

CPP_SUFFIXES = (".h", ".cc", ".c", ".cu")
IGNORED_FOLDERS = {".git", ".venv", ".cache", "build", "dist", "__pycache__"}


@dataclass(frozen=True)
class Finding:
    """One broken rule. ``line`` counts from 1; 0 means the whole file."""

    path: str
    line: int
    rule: str
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        weight = "error" if self.fatal else "warning"
        return f"{self.path}:{self.line}: {weight}: {self.message} [{self.rule}]"


@dataclass(frozen=True)
class SourceFile:
    """A text file of the tree; ``path`` is relative to the root, with forward slashes."""

    path: str
    text: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def folder(self) -> str:
        return str(PurePosixPath(self.path).parent)

    @property
    def is_cpp(self) -> bool:
        return self.path.endswith(CPP_SUFFIXES)

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py") or (
            "." not in self.name and self.text.startswith("#!") and "python" in self.text[:40]
        )

    @property
    def is_script(self) -> bool:
        """Shell and CMake."""
        return (
            self.path.endswith((".sh", ".cmake"))
            or self.name == "CMakeLists.txt"
            or (self.text.startswith("#!") and "sh" in self.text.split("\n", 1)[0])
        )

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def without_comments(self) -> list[str]:
        """C++ lines with comments blanked out; strings stay."""
        return blank_out(self.text, strings=False).split("\n")

    @cached_property
    def code(self) -> list[str]:
        """C++ lines with comments and the insides of literals blanked out."""
        return blank_out(self.text, strings=True).split("\n")

    def in_folder(self, *folders: str) -> bool:
        return any(self.path.startswith(folder + "/") for folder in folders)


@dataclass
class Tree:
    """All text files below ``root`` that git tracks or would track."""

    root: Path
    files: list[SourceFile] = field(default_factory=list)

    @classmethod
    def read(cls, root: Path) -> Tree:
        tree = cls(root)
        for path in sorted(_paths(root)):
            full = root / path
            if full.is_symlink() or not full.is_file():
                continue
            data = full.read_bytes()
            if b"\0" in data[:8192]:
                continue
            tree.files.append(SourceFile(path, data.decode("utf-8", errors="replace")))
        return tree

    @property
    def cpp(self) -> Iterator[SourceFile]:
        return (file for file in self.files if file.is_cpp)

    @property
    def python(self) -> Iterator[SourceFile]:
        return (file for file in self.files if file.is_python)


def _paths(root: Path) -> list[str]:
    """What git tracks or would track; without git, every file outside the ignored folders."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        return [name for name in listing.stdout.decode().split("\0") if name]
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in IGNORED_FOLDERS]
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return paths


def _literal_end(text: str, start: int) -> int:
    """The position after the string or character literal that opens at ``start``."""
    quote = text[start]
    position = start + 1
    while position < len(text) and text[position] != quote:
        position += 2 if text[position] == "\\" else 1
    return min(position + 1, len(text))


def _raw_string_end(text: str, start: int) -> int:
    """The position after the raw string literal whose ``R"`` stands at ``start``."""
    opening = text.index("(", start)
    closing = text.find(f'){text[start + 2 : opening]}"', opening)
    return len(text) if closing < 0 else closing + 2 + (opening - start - 2)


def _is_separator(text: str, position: int) -> bool:
    """True for the apostrophe of 1'000 or 0xff'ff, which opens no literal."""
    return position > 0 and (text[position - 1].isalnum() or text[position - 1] == "_")


def _token_end(text: str, position: int) -> tuple[int, str]:
    """The end and the kind ("comment", "literal" or "code") of what starts at ``position``."""
    two = text[position : position + 2]
    if two == "//":
        end = text.find("\n", position)
        return (len(text) if end < 0 else end), "comment"
    if two == "/*":
        end = text.find("*/", position + 2)
        return (len(text) if end < 0 else end + 2), "comment"
    if two == 'R"' and not _is_separator(text, position):
        return _raw_string_end(text, position), "literal"
    if text[position] == '"' or (text[position] == "'" and not _is_separator(text, position)):
        return _literal_end(text, position), "literal"
    return position + 1, "code"


def blank_out(text: str, strings: bool) -> str:
    """C++ ``text`` with comments, and with ``strings`` also literals, replaced by spaces."""
    pieces = []
    position = 0
    while position < len(text):
        end, kind = _token_end(text, position)
        piece = text[position:end]
        if kind == "comment" or (kind == "literal" and strings):
            piece = "".join("\n" if character == "\n" else " " for character in piece)
        pieces.append(piece)
        position = end
    return "".join(pieces)
