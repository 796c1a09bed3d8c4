"""Where the time of a collective goes, by samples: what docs/performance.md means by a profile.

    python bench/report/profile_calls.py --transport tcp --codec int8 --min-bytes 16M --iters 200

runs ``tersum perf`` with these options and ``--compare tersum-c++`` under ``perf record`` (package
linux-perf; needs build/peers of ``scripts/bench --peers``) and prints the share of each kind of
work in the samples of tersum's ranks from C++, with the functions that took most. Take so many
iterations that making and checking the data do not count.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

_COMM = "tersum_all_redu"  # as the kernel cuts the name
_HERTZ = "1500"
_SHOWN = 3  # functions of each kind

# The first that matches a function decides.
KINDS = (
    ("coding", r"tersum::N_\w+::"),
    ("copying", r"\[k\].*(copy|rep_movs)|(memcpy|memmove|memset|stream_copy|stream_lines)"),
    ("waiting", r"sched|yield|poll|futex|pause|now_ns|ktime|clock|schedule|idle"),
    ("kernel", r"\[k\]"),
    ("engine", r"tersum::"),
)
_LINE = re.compile(r"\s*([\d.]+)%\s+\S+\s+(\[[k.]\]\s.*\S)")


def kind_of(function: str) -> str:
    """What a function as ``perf report`` names it, ``"[k] tcp_sendmsg"``, works at."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, function)), "other")


def shares_of(report: Iterable[str]) -> dict[str, list[tuple[float, str]]]:
    """Of ``perf report``'s lines: per kind the functions with their share of all, largest first."""
    found: dict[str, list[tuple[float, str]]] = {}
    for line in report:
        match = _LINE.match(line)
        if match and float(match[1]) > 0:
            # Namespaces, template arguments and perf's columns behind two spaces say nothing here.
            function = re.sub(r"<.*", "", re.sub(r"\s{2,}.*", "", match[2][4:]))
            row = (float(match[1]), function.removeprefix("tersum::"))
            found.setdefault(kind_of(match[2]), []).append(row)
    return {kind: sorted(rows, reverse=True) for kind, rows in found.items()}


def table(shares: dict[str, list[tuple[float, str]]]) -> str:
    """A line for each kind: its share of the samples, and what took most of it."""
    total = sum(share for rows in shares.values() for share, _ in rows)
    sums = {kind: sum(share for share, _ in rows) for kind, rows in shares.items()}
    lines = []
    for kind in sorted(sums, key=sums.__getitem__, reverse=True):
        most = ", ".join(f"{name} {100 * x / total:.0f} %" for x, name in shares[kind][:_SHOWN])
        lines.append(f"{kind:8} {100 * sums[kind] / total:5.1f} %  {most}")
    return "\n".join(lines)


def main() -> int:
    if shutil.which("perf") is None:
        print("there is no perf; apt-get install linux-perf", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "perf.data")
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", _HERTZ, "-o", data, "--"]
        measured = [sys.executable, "-m", "tersum", "perf", *sys.argv[1:]]
        status = subprocess.run([*record, *measured, "--compare", "tersum-c++"]).returncode
        if status != 0:
            return status
        report = subprocess.run(
            [
                *("perf", "report", "-i", data, "--no-children", "--comm", _COMM),
                *("--sort", "dso,symbol", "--stdio"),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
    shares = shares_of(report.stdout.splitlines())
    if not shares:
        print(f"no samples of {_COMM}: build it with scripts/bench --peers", file=sys.stderr)
        return 1
    print(table(shares))
    return 0


if __name__ == "__main__":
    sys.exit(main())
