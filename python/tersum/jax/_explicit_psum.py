"""``tersum.jax.psum``: one sum with a codec of its own, whatever the rest of the program does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import tersum
from tersum.jax._install import ensure_hook_for_psum
from tersum.jax._jax_version import require_jax, require_xla_core
from tersum.jax._options import auto_codec, names_auto

jax = require_jax()
T = TypeVar("T")


def psum(
    x: T,
    axis_name: Hashable | tuple[Hashable, ...],
    *,
    codec: str = "int8/128",
    max_rel_error: float = 0.0,
) -> T:
    """``lax.psum`` whose sum travels in ``codec`` (``"off"`` leaves it to XLA).

    ``"auto"`` takes the cheapest codec whose error stays within ``max_rel_error``, of those that
    ``"auto:SPEC|SPEC|…"`` names, as :func:`tersum.jax.install` says; it is for these alone.

    ``x``: an array or a pytree of arrays; the result has its shapes and types. For use inside
    ``jax.shard_map`` (or ``pmap``), under ``jit``, ``grad`` and ``vmap``; the derivative is that of
    ``lax.psum``, and where that is a sum again, it travels in ``codec`` too. Works with and without
    :func:`tersum.jax.install`, whose ``min_bytes`` and ``local`` hold here as well; what is left to
    XLA, and why, :func:`tersum.jax.report` tells.

    ``InvalidArgumentError`` for an unknown codec, ``"auto"`` without an error or an error with
    another codec.
    """
    name = _codec_name(codec, max_rel_error)
    ensure_hook_for_psum()
    # XLA merges independent sums of one type and group into one instruction, whatever their
    # metadata. In a computation of its own, which is not inlined, this sum stays apart.
    with _metadata(tersum=name, inlineable="false"):
        result: T = _make_sum(axis_name, name)(x)
    return result


def _codec_name(codec: str, max_rel_error: float) -> str:
    if names_auto(codec):
        return auto_codec(max_rel_error, codec)
    if max_rel_error != 0:
        raise tersum.InvalidArgumentError(
            f"max_rel_error is {max_rel_error} beside codec={codec!r}; it is for codec='auto'"
        )
    if codec == "off":
        return codec
    name: str = require_xla_core().canonical_codec(codec)
    return name


def _metadata(**values: str) -> Any:
    from jax.experimental.xla_metadata import set_xla_metadata

    return set_xla_metadata(**values)  # type: ignore[no-untyped-call]


@functools.cache
def _make_sum(axis_name: Any, codec: str) -> Callable[[Any], Any]:
    # One jitted function per axis and codec, so that tracing finds it again.
    def tersum_psum(x: Any) -> Any:
        with _metadata(tersum=codec):
            return jax.lax.psum(x, axis_name)

    jitted: Callable[[Any], Any] = jax.jit(tersum_psum)
    return jitted
