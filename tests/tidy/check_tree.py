"""Enforces the rules of the house: ``check_tree.py ROOT`` exits with 1 if any is broken.

Layers (who includes whom), sizes (files, functions, lines), unique file names, banned calls and
texts, links between pages. Warnings are printed and do not fail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tidy_bans import check_calls, check_python_prints, check_texts
from tidy_layers import check_header_openings, check_layers, check_python_imports
from tidy_links import check_links
from tidy_sizes import (
    check_file_sizes,
    check_function_sizes,
    check_line_lengths,
    check_unique_names,
)
from tidy_tree import Finding, Tree

RULES: tuple[Callable[[Tree], Iterator[Finding]], ...] = (
    check_layers,
    check_header_openings,
    check_python_imports,
    check_file_sizes,
    check_line_lengths,
    check_function_sizes,
    check_unique_names,
    check_calls,
    check_texts,
    check_python_prints,
    check_links,
)


def check(root: Path) -> list[Finding]:
    """All findings of all rules, in the order of their files."""
    tree = Tree.read(root)
    if not tree.files:
        raise SystemExit(f"{root} holds no text file: nothing was checked")
    findings = [finding for rule in RULES for finding in rule(tree)]
    return sorted(findings, key=lambda finding: (finding.path, finding.line))


def main() -> int:
    findings = check(Path(sys.argv[1]).resolve())
    for finding in findings:
        print(finding)
    errors = sum(finding.fatal for finding in findings)
    print(f"{errors} errors, {len(findings) - errors} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
