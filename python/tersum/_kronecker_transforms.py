"""Matrices of "+kronecker:…": registered in this process, or written to a file.

Thread safety: pure functions, but that the process keeps every transform registered. What a file
holds is docs/wire-format.md, "Files of +kronecker".
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tersum import _core

Floats = npt.NDArray[np.float32]


def register_kronecker(
    p1: npt.ArrayLike, p2: npt.ArrayLike, diagonal: npt.ArrayLike | None = None
) -> str:
    """Makes matrices a modifier of this process: ``"kronecker:"`` and 16 digits, to be put behind a
    spec and ``+``: ``f"int4/128+{modifier}"``.

    A block of ``len(p1) * len(p2)`` values, seen as ``len(p1)`` rows, becomes ``p1.T @ X @ p2``
    before it is coded, and is turned back after decoding. The modifier names these numbers wherever
    they are registered, so ranks compare it. InvalidArgumentError says what is wrong.

    :param p1: square, its side a power of two up to 128.
    :param p2: the same; together they have blocks of 16 to 1,024 values.
    :param diagonal: a factor for each channel, 65,536 at most: value i of an array is multiplied by
        ``diagonal[i % len(diagonal)]`` first.
    """
    return _core.register_kronecker(*_checked(p1, p2, diagonal))


def write_kronecker(
    path: str | os.PathLike[str],
    p1: npt.ArrayLike,
    p2: npt.ArrayLike,
    diagonal: npt.ArrayLike | None = None,
    *,
    comment: str = "",
) -> str:
    """Writes the matrices to a file, for ``"+kronecker:" + path``, and returns what
    :func:`register_kronecker` does. ``comment``: what the file shall say of itself."""
    left, right, factors = _checked(p1, p2, diagonal)
    modifier = _core.register_kronecker(left, right, factors)
    sides = [int(np.sqrt(matrix.size)) for matrix in (left, right)]
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += ["tersum-kronecker 1", f"{sides[0]} {sides[1]} {factors.size}"]
    rows = [*left.reshape(-1, sides[0]), *right.reshape(-1, sides[1])]
    rows += [factors[i : i + 8] for i in range(0, factors.size, 8)]
    lines += [" ".join(f"{number:.9g}" for number in row) for row in rows]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return modifier


def _checked(
    p1: npt.ArrayLike, p2: npt.ArrayLike, diagonal: npt.ArrayLike | None
) -> tuple[Floats, Floats, Floats]:
    """Row by row. What is no square matrix is refused by its number of values."""
    numbers = [p1, p2, np.zeros(0) if diagonal is None else diagonal]
    flat = [np.ascontiguousarray(part, np.float32).reshape(-1) for part in numbers]
    return flat[0], flat[1], flat[2]
