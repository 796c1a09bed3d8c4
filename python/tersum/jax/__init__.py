"""tersum for JAX: the sums of unmodified programs travel quantized.

    import tersum.jax
    tersum.jax.install()                  # int8 in blocks of 128; every process calls it

All-reduces and reduce-scatters of float32, bfloat16 and float16 (``psum``, ``psum_scatter`` and
what XLA's partitioner inserts for sharded matmuls) then go over tersum wherever a group spans
processes. ``report()`` tells what became of each, ``stats()`` what it cost, ``psum()`` chooses a
codec for one sum, ``capture()`` writes down what is summed. ``python -m tersum.jax program.py``
runs a program without even that line.
"""

from tersum.jax._jax_version import require_jax as _require_jax
from tersum.jax._jax_version import require_xla_core as _require_xla_core

_require_jax()
_require_xla_core()

from tersum.jax._capture import capture  # noqa: E402
from tersum.jax._explicit_psum import psum  # noqa: E402
from tersum.jax._install import (  # noqa: E402
    install,
    installed,
    load_feedback,
    load_flatten,
    report,
    reset_feedback,
    reset_flatten,
    save_feedback,
    save_flatten,
    stats,
    uninstall,
)
from tersum.jax._report import CollectiveRow, Report, Stats  # noqa: E402

__all__ = [
    "CollectiveRow",
    "Report",
    "Stats",
    "capture",
    "install",
    "installed",
    "load_feedback",
    "load_flatten",
    "psum",
    "report",
    "reset_feedback",
    "reset_flatten",
    "save_feedback",
    "save_flatten",
    "stats",
    "uninstall",
]
