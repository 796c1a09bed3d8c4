"""Whether a command of the report can run here, and if not, why."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import NamedTuple

from report_parts import Part, parse_perf

from tersum.cli.perf_command import make_options
from tersum.cli.perf_contender import choose_libraries
from tersum.cli.perf_options import LIBRARIES
from tersum.cli.shaped_link import unavailable_reason


class Folders(NamedTuple):
    """Where programs are: those of the build, and those of other libraries."""

    build: Path
    peers: Path


def why_not(part: Part, folders: Folders) -> str:
    """Why the command cannot run at all; empty if it can."""
    if part.kind == "program" and not os.access(folders.build / part.what, os.X_OK):
        return f"no {part.what} in {folders.build}: scripts/bench builds it"
    if "namespaces" in part.needs and (reason := _no_namespaces()):
        return reason
    if "peers" in part.needs:
        libraries, reasons = libraries_of(part, folders.peers)
        if not set(libraries) - {"gloo"}:
            return "; ".join(reasons)
    return ""


def libraries_of(part: Part, peers: Path) -> tuple[list[str], list[str]]:
    """The other libraries of ``perf --compare`` that can take part, and why others cannot."""
    asked = parse_perf(part)
    options = make_options(asked)
    names = [name for name in LIBRARIES if {name, "all"} & set(asked.compare)]
    return choose_libraries(names, options, peers, asked.ranks, local=True, linked=False)


@functools.cache
def _no_namespaces() -> str:
    reason = unavailable_reason()
    return f"no network namespaces: {reason}" if reason else ""
