"""What numbers depend on and is worth keeping beside them; nothing that names the machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import tersum

_TREE = Path(__file__).resolve().parents[2]


def machine_facts(date: str, quick: bool) -> dict[str, Any]:
    """Of the machine and the tree; ``date``: of the measurement, empty for that of the commit."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{platform.system()} {_version(platform.release())}",
        "isa": tersum.isa(),
        "tersum": tersum.__version__,
        "commit": _commit(),
        "date": date or _git("log", "-1", "--format=%cs") or "unknown",
        "quick": quick,
    }


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def _version(release: str) -> str:
    """The numbers of a kernel's release; what follows them may name a machine or its owner."""
    match = re.match(r"[\d.]+", release)
    return match[0] if match else "unknown"


def _commit() -> str:
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{commit} and changes" if commit and changed else commit or "unknown"


def _git(*arguments: str) -> str:
    """What git says of the tree; empty where there is no git, or no repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(_TREE), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
