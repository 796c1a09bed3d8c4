"""Prints the line coverage of src/ and include/ by folder: ``coverage_summary.py BUILD_FOLDER``.

Reads the counters that programs built with ``--coverage`` left behind, through gcov's JSON. A line
counts as covered if any translation unit ran it; headers are in many.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

SOURCE_FOLDERS = ("src/", "include/")

#: (file relative to the root, line) -> was it run?
Lines = dict[tuple[str, int], bool]


def read_counters(root: Path, build: Path) -> Lines:
    """Every instrumented line of the source folders."""
    lines: Lines = {}
    counters = sorted(str(path.resolve()) for path in build.rglob("*.gcda"))
    for start in range(0, len(counters), 50):
        listing = subprocess.run(
            ["gcov", "--json-format", "--stdout", *counters[start : start + 50]],
            capture_output=True,
            text=True,
            check=True,
            cwd=build,
        )
        for report in listing.stdout.splitlines():
            _add_report(root, build, json.loads(report), lines)
    return lines


def _add_report(root: Path, build: Path, report: Any, lines: Lines) -> None:
    for source in report["files"]:
        full = (build / source["file"]).resolve()
        if not full.is_relative_to(root):
            continue
        name = full.relative_to(root).as_posix()
        if not name.startswith(SOURCE_FOLDERS):
            continue
        for line in source["lines"]:
            key = (name, line["line_number"])
            lines[key] = lines.get(key, False) or bool(line["count"])


def print_table(lines: Lines) -> None:
    """One row per folder, and the sum."""
    folders: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (name, _), covered in lines.items():
        for row in (name.rsplit("/", 1)[0], "all"):
            folders[row][0] += covered
            folders[row][1] += 1
    for folder, (hit, total) in sorted(folders.items(), key=lambda row: (row[0] == "all", row)):
        print(f"{folder:28} {hit:6} of {total:6} lines  {100 * hit / total:5.1f} %")


def main() -> int:
    root = Path.cwd().resolve()
    lines = read_counters(root, Path(sys.argv[1]).resolve())
    if not lines:
        print("no counters found: did the tests of a --coverage build run?")
        return 1
    print_table(lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
