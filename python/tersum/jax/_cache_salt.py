"""Keeps the persistent compilation cache honest.

What the compiler hook does to a program is no part of the cache's key. So the installed options are
mixed into it; without that a cached program would run with the choice of an earlier process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tersum.jax._jax_version import require_jax

_current_salt = ""
_our_hook: Callable[[], str] | None = None


def set_salt(salt: str) -> None:
    """Mixes ``salt`` into every cache key from now on; ``""`` leaves the keys of stock JAX."""
    global _current_salt
    _current_salt = salt
    if salt:
        ensure_hook()


def ensure_hook() -> None:
    """Chains our hook to whatever hook is in place; disables the cache where there is none."""
    global _our_hook
    from jax._src import cache_key

    previous = getattr(cache_key, "custom_hook", None)
    if previous is None:
        _disable_persistent_cache()
        return
    if previous is _our_hook:
        return
    _our_hook = _make_hook(previous)
    cache_key.custom_hook = _our_hook


def hook_in_place() -> bool:
    """False when somebody replaced our hook since."""
    from jax._src import cache_key

    return _our_hook is not None and getattr(cache_key, "custom_hook", None) is _our_hook


def _make_hook(previous: Any) -> Callable[[], str]:
    def hook() -> str:
        # When another hook that calls ours was put in front and ours is chained again, the salt
        # appears twice, which does no harm.
        return str(previous()) + _current_salt

    return hook


def _disable_persistent_cache() -> None:
    jax = require_jax()
    if not jax.config.jax_enable_compilation_cache:
        return
    jax.config.update("jax_enable_compilation_cache", False)
    warnings.warn(
        f"jax {jax.__version__} has no hook for the key of its persistent compilation cache, so "
        "tersum turned that cache off (jax_enable_compilation_cache): it would serve programs "
        "compiled with other tersum options",
        RuntimeWarning,
        stacklevel=4,
    )
