"""Calls and texts that may stand only in one place, or nowhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tidy_tree import Finding, SourceFile, Tree

#: This checker and its own test must be able to name what they forbid.
OWN_FOLDER = "tests/tidy"


@dataclass(frozen=True)
class CallBan:
    """A pattern that may not stand in C++ code of ``folders``, ``allowed`` excepted."""

    rule: str
    pattern: re.Pattern[str]
    folders: tuple[str, ...]
    allowed: tuple[str, ...]
    message: str


CALL_BANS = (
    CallBan(
        "time",
        re.compile(
            r"\bnow\s*\(|\b(clock_gettime|gettimeofday|sleep_for|sleep_until|usleep|nanosleep|"
            r"rdtsc)\s*\(|::sleep\s*\(|\btime\s*\(\s*(nullptr|NULL|0|&)"
        ),
        ("src", "include", "tests/sim"),
        ("src/platform/",),
        "time passes only in src/platform; take a Clock",
    ),
    CallBan(
        "random",
        re.compile(r"\b(random_device|getrandom|getentropy|rand|srand|drand48)\b\s*[({]"
                   r"|\bstd::random_device\b|(?<!\w)::random\s*\("),
        ("src", "include"),
        ("src/platform/",),
        "randomness comes only from src/platform; take a Random",
    ),
    CallBan(
        "environment",
        re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b"),
        ("src", "include", "tools", "python"),
        ("src/platform/environment.cc",),
        "the environment is read only by src/platform/environment.cc",
    ),
    CallBan(
        "printing",
        re.compile(r"\bv?f?printf\s*\(|\b(puts|fputs|putchar|fwrite|perror)\s*\(|"
                   r"\bstd::(cout|cerr|clog)\b|#\s*include\s*<iostream>"),
        ("src", "include"),
        # The last words before an abort.
        ("src/base/check.cc",),
        "the library never prints; use base/log.h",
    ),
    CallBan(
        "assert",
        re.compile(r"\bassert\s*\(|#\s*include\s*<cassert>"),
        ("src", "include"),
        (),
        "assert vanishes in release; use TERSUM_CHECK",
    ),
    CallBan(
        "fused",
        re.compile(r"\b(Neg)?Mul(Add|Sub)\s*\(|\bfmaf?l?\s*\("),
        ("src", "include"),
        # Products with 1 and -1, which are exact.
        ("src/codec/kernels/signed_sum-inl.h",),
        "a fused multiply-add rounds differently from Mul and Add on other CPUs",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class TextBan:
    """A pattern that may not stand in any tracked text, or only not in code and build files."""

    rule: str
    pattern: re.Pattern[str]
    code_only: bool
    message: str


TEXT_BANS = (
    TextBan(
        "native",
        re.compile(r"-m(arch|tune|cpu)=native|-ffast-math|-Ofast|-ffp-contract=(fast|on)"),
        True,
        "results and binaries may not depend on the building machine",
    ),
    TextBan(
        "machine-path",
        re.compile(r"(?<![\w.])/(work|root|home/\w+|opt/wheels|tmp/build-\w+)(/|\b)"),
        False,
        "a path of one machine",
    ),
    TextBan(
        "registry",
        re.compile(r"\b(pypi\.org|pythonhosted\.org|(deb|security|ftp)\.debian\.org|"
                   r"artifactory|index-url|extra-index-url|download\.pytorch\.org)\b"),
        False,
        "where packages come from is the machine's affair (apt sources, pip configuration)",
    ),
)  # fmt: skip


def check_calls(tree: Tree) -> Iterator[Finding]:
    for file in tree.cpp:
        for ban in CALL_BANS:
            if file.in_folder(*ban.folders) and not file.path.startswith(ban.allowed):
                yield from _matches(file, file.code, ban)


def check_texts(tree: Tree) -> Iterator[Finding]:
    for file in tree.files:
        if file.in_folder(OWN_FOLDER):
            continue
        is_prose = file.path.endswith((".md", ".txt")) and file.name != "CMakeLists.txt"
        for ban in TEXT_BANS:
            if not (ban.code_only and is_prose):
                yield from _matches(file, file.lines, ban)


def check_python_prints(tree: Tree) -> Iterator[Finding]:
    """The package prints only where it is a program: its command line and __main__ files."""
    for file in tree.python:
        if not file.in_folder("python/tersum"):
            continue
        if file.in_folder("python/tersum/cli") or file.name == "__main__.py":
            continue
        try:
            module = ast.parse(file.text)
        except SyntaxError:
            continue  # check_function_sizes reports it
        for node in ast.walk(module):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "print"
            ):
                message = "the package prints only in tersum.cli and __main__"
                yield Finding(file.path, node.lineno, "printing", message)


def _matches(file: SourceFile, lines: list[str], ban: CallBan | TextBan) -> Iterator[Finding]:
    for number, line in enumerate(lines, 1):
        match = ban.pattern.search(line)
        if match:
            yield Finding(file.path, number, ban.rule, f"{match[0].strip()}: {ban.message}")
