"""Options of ``tersum perf`` as its ranks have them, for tests."""

from __future__ import annotations

from typing import Any

from tersum.cli.perf_options import PerfOptions


def sample_options(**changes: Any) -> PerfOptions:
    """A short exact all_reduce over TCP, but for ``changes``."""
    values: dict[str, Any] = {
        **{"op": "all_reduce", "redop": "sum", "dtype": "float32", "codecs": ("exact",)},
        **{"plans": ("auto",), "transport": "tcp", "sizes": (4096,), "iters": 20, "warmup": 1},
        **{"seed": 1, "compare": (), "timeout_ms": 1000, "streams": 0, "link_bits_per_s": 0},
    }
    return PerfOptions(**{**values, **changes})
