#!/usr/bin/env python3
"""Measures everything that docs/performance.md shows, one thing after the other.

    python bench/report/measure_report.py FOLDER [--only NAME,NAME] [--quick] [--list]

Prints each command before it runs, writes FOLDER/NAME.json for each measurement and
FOLDER/machine.json; plot_report.py draws them. What needs root (network namespaces), the build's
benchmarks or the programs of other libraries and finds none is skipped, with the reason; what
fails is reported, and the others go on. Exit status 1 if anything failed, 2 for wrong options.

With --cores near (or far) a command waits until this machine's CPUs share a last-level cache (or do
not), and is repeated if a hypervisor has moved them meanwhile.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from machine_facts import machine_facts
from report_measurements import measurements
from report_needs import Folders, libraries_of, why_not
from report_parts import BENCH, Measurement, Part
from report_placement import PLACES, run_at_place
from report_wires import SWEEP, TOPOLOGY, predicted_seconds

from tersum.cli.perf_peers import DEFAULT_FOLDER

Rows = list[dict[str, Any]]


class Outcome(NamedTuple):
    """What became of a measurement; ``notes`` say what is missing of it, other libraries, too."""

    name: str
    state: str  # "measured", "partly measured", "skipped", "failed"
    seconds: float
    notes: tuple[str, ...]


def command_of(part: Part, folders: Folders, json_file: Path) -> list[str]:
    """The arguments, the program first."""
    ending = ["--json", str(json_file)]
    if part.kind == "program":
        return [str(folders.build / part.what), *part.arguments, *ending]
    if part.kind == "script":
        script = os.path.relpath(BENCH / part.what)
        return [sys.executable, script, *part.arguments, *ending]
    peers = ["--peers", str(folders.peers)] if "peers" in part.needs else []
    return [sys.executable, "-m", "tersum", "perf", *part.arguments, *peers, *ending]


def _run(part: Part, folders: Folders, json_file: Path) -> tuple[Rows, str]:
    """The rows, and what went wrong: they may be there although something did."""
    command = command_of(part, folders, json_file)
    print(f"$ {shlex.join(command)}", flush=True)
    try:
        status = subprocess.run(command, check=False).returncode
    except OSError as error:
        return [], f"cannot start: {error.strerror}"
    failure = "" if status in (0, *part.verdicts) else f"exit status {status}"
    try:
        rows: Rows = json.loads(json_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [], failure or "it wrote no rows"
    finally:
        json_file.unlink(missing_ok=True)
    return rows, failure


def _missing_libraries(part: Part, folders: Folders, rows: Rows) -> list[str]:
    """Why libraries that were to be compared with are not in the rows."""
    if "peers" not in part.needs:
        return []
    libraries, reasons = libraries_of(part, folders.peers)
    measured = {row["library"] for row in rows}
    return reasons + [f"{name} failed: see above" for name in libraries if name not in measured]


def measure(measurement: Measurement, folders: Folders, folder: Path, cores: str = "") -> Outcome:
    """Runs all commands and writes the rows of those that could run; ``cores``: see above."""
    out = folder / f"{measurement.name}.json"
    out.unlink(missing_ok=True)  # rows of another day must not pass for today's
    rows: Rows = []
    skipped: list[str] = []
    failed: list[str] = []
    missing: list[str] = []
    begun = time.monotonic()
    for number, part in enumerate(measurement.parts, 1):
        where = f"command {number}: " if len(measurement.parts) > 1 else ""
        if reason := why_not(part, folders):
            skipped.append(where + reason)
            continue
        json_file = folder / f"{measurement.name}.part-{number}"
        run = functools.partial(_run, part, folders, json_file)
        (got, failure), moved = run_at_place(run, cores)
        missing += [where + moved] if moved else []
        failed += [where + failure] if failure else []
        missing += [where + text for text in _missing_libraries(part, folders, got)]
        rows += got
    if rows:
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    notes = (*failed, *skipped, *missing)
    if failed:
        state = "failed"
    elif not rows:
        state = "skipped"
    else:
        state = "partly measured" if skipped else "measured"
    return Outcome(measurement.name, state, time.monotonic() - begun, notes)


def _heading(measurement: Measurement) -> str:
    text = f"\n== {measurement.name}"
    if measurement.name.startswith((SWEEP, TOPOLOGY)):
        seconds = sum(predicted_seconds(part) for part in measurement.parts)
        text += f" (calls of about {seconds:.0f} s by the cost model)"
    return text


def _print_summary(outcomes: list[Outcome]) -> None:
    print("\n== summary")
    for outcome in outcomes:
        print(f"{outcome.name}: {outcome.state} ({outcome.seconds:.0f} s)")
        for note in dict.fromkeys(outcome.notes):
            print(f"    {note}")


def _chosen(names: str | None, quick: bool) -> list[Measurement]:
    """Those named, in the order of the list. Ends the program for a name that is none."""
    every = measurements(quick)
    if not names:
        return every
    wanted = names.split(",")
    known = [measurement.name for measurement in every]
    for name in wanted:
        if name not in known:
            print(f"no measurement {name!r}; there are: {', '.join(known)}", file=sys.stderr)
            sys.exit(2)
    return [measurement for measurement in every if measurement.name in wanted]


def main() -> int:
    """Measures, or lists."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tree = Path(os.path.relpath(BENCH.parent))
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--only", metavar="NAME,NAME")
    parser.add_argument("--quick", action="store_true", help="tiny: does it all still run?")
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    parser.add_argument(
        "--build", type=Path, default=tree / "build/release", help="default build/release"
    )
    parser.add_argument(
        "--peers", type=Path, default=tree / DEFAULT_FOLDER, help=f"default {DEFAULT_FOLDER}"
    )
    parser.add_argument("--cores", choices=PLACES, default="", help="wait for them; default: as is")
    parser.add_argument("--date", default="", help="of today; default: that of git's HEAD")
    options = parser.parse_args()
    folders = Folders(options.build, options.peers)
    chosen = _chosen(options.only, options.quick)
    if options.list:
        for measurement in chosen:
            print(_heading(measurement))
            for part in measurement.parts:
                json_file = options.folder / f"{measurement.name}.json"
                print(f"$ {shlex.join(command_of(part, folders, json_file))}")
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    facts = machine_facts(options.date, options.quick)
    (options.folder / "machine.json").write_text(json.dumps(facts, indent=1) + "\n")
    outcomes = []
    for measurement in chosen:
        print(_heading(measurement), flush=True)
        outcomes.append(measure(measurement, folders, options.folder, options.cores))
    _print_summary(outcomes)
    return 1 if any(outcome.state == "failed" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
