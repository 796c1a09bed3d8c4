"""Levels of "table:…" codecs: learned from values by weighted k-means, alone or by a group.

Thread safety: pure functions, but that the process keeps every table registered. The core finds the
levels: the same for the same numbers on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tersum import _core
from tersum._arrays import read_input
from tersum.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tersum.communicator import Communicator

LEVEL_COUNTS = (2, 4, 8, 16)
_BLOCKS = (32, 64, 128, 256, 512, 1024)
# Values of one rank, when a group learns together.
_SAMPLE = 1 << 16
_NOTHING = "there is nothing to learn from: every finite block is zero, or weighs nothing"

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def register_table(levels: npt.ArrayLike) -> str:
    """Makes levels a codec of this process; its spec, ``"table:"`` and 16 digits.

    ``levels``: 2, 4, 8 or 16 numbers, ascending, in [-1, 1], parts of the largest magnitude of a
    block. The spec names these levels wherever they are registered, so ranks compare it; blocks and
    modifiers may be put behind it: ``spec + "/32+sparse:0.5%"``. Levels in a file
    (``np.savetxt(path, levels)``) are ``"table:" + path`` without a registration.
    """
    return _core.register_table(np.ascontiguousarray(levels, np.float32).reshape(-1))


def learn_table(
    x: object, levels: int = 16, *, block: int = 64, weights: npt.ArrayLike | None = None
) -> Floats:
    """The ``levels`` (2, 4, 8 or 16) that code ``x`` with the least squared error, for
    :func:`register_table`.

    :param x: values like those that will travel, of a floating type: some ten thousand suffice.
        Blocks with something that is not finite are left out.
    :param block: values that share a scale, as in the spec that the levels are for.
    :param weights: of each value's squared error, of the shape of ``x``, 0 or more: say, an
        estimate of the loss's second derivative there.
    """
    if levels not in LEVEL_COUNTS:
        raise InvalidArgumentError(f"levels must be 2, 4, 8 or 16, got {levels}")
    if block not in _BLOCKS:
        raise InvalidArgumentError(f"block must be one of {_BLOCKS}, got {block}")
    parts, importance = _parts_of_blocks(x, block, weights)
    return _best_levels(parts, importance, levels)


def learn_codec(group: Communicator, spec: str, x: object, weights: npt.ArrayLike | None) -> str:
    """See :meth:`tersum.Communicator.learn_codec`."""
    count, block = _read_spec(spec)
    parts, importance = _parts_of_blocks(x, block, weights)
    top = np.array([importance.max(initial=0.0)])
    largest = float(group.all_reduce(top, op="max", codec="exact")[0])
    if largest == 0:
        raise InvalidArgumentError(_NOTHING)
    step = max(1, -(-len(parts) // _SAMPLE))
    # Every rank sends as much; what fills a short sample weighs nothing.
    sample = np.zeros((1, 2, _SAMPLE), np.float32)
    filled = len(parts[::step])
    sample[0, 0, :filled] = parts[::step]
    sample[0, 1, :filled] = importance[::step] / largest
    samples = group.all_gather(sample, codec="exact").astype(np.float64)
    found = np.zeros(count, np.float32)
    if group.rank == 0:
        found = _best_levels(samples[:, 0].reshape(-1), samples[:, 1].reshape(-1), count)
    # From one rank: elsewhere NumPy may sum in another order.
    found = group.broadcast(found, root=0, codec="exact")
    return f"{register_table(found)}/{block}"


def _read_spec(spec: str) -> tuple[int, int]:
    """Levels and block of "kmeans:16/64"."""
    base, slash, block = spec.partition("/")
    kind, _, count = base.partition(":")
    blocks = {str(size): size for size in _BLOCKS}
    counts = {str(levels): levels for levels in LEVEL_COUNTS}
    if kind != "kmeans" or count not in counts or (slash and block not in blocks):
        raise InvalidArgumentError(
            f'codec "{spec}": what is learned is written "kmeans:K" or "kmeans:K/B", K 2, 4, 8 or '
            f"16, B one of {_BLOCKS}; modifiers go behind the spec that comes back"
        )
    return counts[count], blocks[block] if slash else 64


def _parts_of_blocks(
    x: object, block: int, weights: npt.ArrayLike | None
) -> tuple[Doubles, Doubles]:
    """Every value as a part of its block's scale, and what its squared error weighs."""
    source = read_input(x)
    if source.dtype not in ("float32", "float16", "bfloat16", "float64"):
        raise InvalidArgumentError(f"a table is learned from floating types, not {source.dtype}")
    flat = np.asarray(source.data).reshape(-1)
    if source.dtype == "bfloat16":
        flat = (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    values = _in_blocks(flat.astype(np.float64), block)
    importance = np.ones_like(values)
    if weights is not None:
        given = np.asarray(weights, np.float64).reshape(-1)
        if given.size != flat.size or not np.all(np.isfinite(given)) or np.any(given < 0):
            raise InvalidArgumentError(
                f"weights must be {flat.size} finite numbers of 0 or more, one for each value"
            )
        importance = _in_blocks(given, block)
    # What fills the last block is not there.
    importance.reshape(-1)[flat.size :] = 0
    absmax = np.abs(values).max(1, initial=0.0)
    usable = np.isfinite(absmax) & (absmax > 0)
    values, importance, absmax = values[usable], importance[usable], absmax[usable]
    mantissa, exponent = np.frexp(absmax)
    scale = np.ldexp(np.ceil(mantissa * 256) / 256, exponent)[:, None]  # bfloat16, rounded up
    # An error of a part is multiplied by the scale.
    return (values / scale).reshape(-1), (importance * scale**2).reshape(-1)


def _in_blocks(flat: Doubles, block: int) -> Doubles:
    padded = np.zeros(-(-flat.size // block) * block)
    padded[: flat.size] = flat
    return padded.reshape(-1, block)


def _best_levels(parts: Doubles, importance: Doubles, levels: int) -> Floats:
    if not np.any(importance > 0):
        raise InvalidArgumentError(_NOTHING)
    parts, importance = np.ascontiguousarray(parts), np.ascontiguousarray(importance)
    return np.array(_core.learn_levels(parts, importance, levels), np.float32)
