"""``tersum perf`` as a command of its own, and what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import tersum

ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "PMI_"))},
    "PYTHONPATH": str(Path(tersum.__file__).parent.parent),
}
COLUMNS = [
    "library",
    "op",
    "dtype",
    "count",
    "bytes",
    "codec",
    "plan",
    "transport",
    "ranks",
    "time_us",
    "time_us_min",
    "time_us_max",
    "predicted_us",
    "busbw_gb_s",
    "wire_bytes",
    "rel_error",
    "wrong",
    "core_distances_ns",
]
SMALL = ["--min-bytes", "4K", "--max-bytes", "16K", "--iters", "3", "--warmup", "1"]


def perf(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tersum", "perf", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**ENVIRONMENT, **(env or {})},
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows
