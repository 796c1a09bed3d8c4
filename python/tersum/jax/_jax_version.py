"""What tersum needs from JAX, checked before anything else of it is imported."""

from __future__ import annotations

import re
from typing import Any

OLDEST = (0, 10, 2)
_REMEDY = "pip install 'jax>=0.10.2'"


def parse_version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``"0.10.2.dev1"`` gives ``(0, 10, 2)``."""
    numbers = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in numbers.group().split(".")) if numbers else ()


def require_jax() -> Any:
    """The module ``jax``, with the compiler hook that tersum stands on.

    ImportError with the remedy when there is no jax, or one without ``jax.extend.xla``.
    """
    try:
        import jax
    except ModuleNotFoundError as error:
        raise ImportError(f"tersum.jax needs JAX, which is missing here: {_REMEDY}") from error
    too_old = (
        f"tersum.jax needs jax >= 0.10.2 for its compiler hook (jax.extend.xla), and this is jax "
        f"{jax.__version__}: {_REMEDY}"
    )
    if parse_version(jax.__version__) < OLDEST:
        raise ImportError(too_old)
    try:
        import jax.extend.xla
    except ModuleNotFoundError as error:
        raise ImportError(too_old) from error
    return jax


def require_xla_core() -> Any:
    """The compiled part, ``tersum._core.xla``; ImportError when tersum was built without it."""
    from tersum import _core

    if not _core.has_xla:
        raise ImportError(
            "this build of tersum has no JAX part: jaxlib's headers were not found when it was "
            "built; install jaxlib >= 0.10.2 and build tersum again"
        )
    return _core.xla  # type: ignore[attr-defined]
