"""Adds up JUnit reports and prints one closing line in pytest's form; exit status 1 on a failure.

Usage: ``test_summary.py REPORT.xml…``. A report without a single test is a failure: something was
not run that should have been.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def suite_counts(path: Path) -> dict[str, float]:
    """Tests, failures, skipped and seconds of one report, over all its suites."""
    root = ElementTree.parse(path).getroot()
    suites = [root] if root.tag == "testsuite" else list(root.iter("testsuite"))
    counts = {"tests": 0.0, "failures": 0.0, "errors": 0.0, "skipped": 0.0, "time": 0.0}
    for suite in suites:
        for key in counts:
            counts[key] += float(suite.get(key, "0"))
    return counts


def main(paths: list[Path]) -> int:
    failed = passed = skipped = seconds = 0.0
    empty = [path for path in paths if suite_counts(path)["tests"] == 0]
    for path in paths:
        counts = suite_counts(path)
        failures = counts["failures"] + counts["errors"]
        failed += failures
        skipped += counts["skipped"]
        passed += counts["tests"] - failures - counts["skipped"]
        seconds += counts["time"]
    for path in empty:
        print(f"{path.name} holds no test")
    pieces = [f"{failed:.0f} failed"] if failed else []
    pieces.append(f"{passed:.0f} passed")
    if skipped:
        pieces.append(f"{skipped:.0f} skipped")
    print(f"===== {', '.join(pieces)} in {seconds:.1f}s =====")
    return 1 if failed or empty or not paths else 0


if __name__ == "__main__":
    raise SystemExit(main([Path(argument) for argument in sys.argv[1:]]))
