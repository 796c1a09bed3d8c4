"""What codecs cost and how wrong they can be, for callers who choose one. Pure functions.

A codec is named by a spec: ``exact``, ``bf16``, ``int8`` (128 values to a scale), ``int8/32``,
``int4/256``. Unknown ones raise InvalidArgumentError, which says what is allowed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tersum import _core


class CodecInfo(NamedTuple):
    """What a spec comes to for an element type and an operation."""

    spec: str  #: in normal form; ``exact`` where the codec asked for cannot serve
    dtype: str
    block: int  #: values that share a scale; 1 for formats without
    lossless: bool
    wire_bits: float  #: per value, scales included


def known_codecs() -> list[str]:
    """The formats without block: ``exact``, ``bf16``, ``int8``, ``int4``."""
    return _core.known_codecs()


def codec_info(spec: str, dtype: str = "float32", op: str = "sum") -> CodecInfo:
    """What ``spec`` comes to for arrays of ``dtype`` under ``op``."""
    return CodecInfo(*_core.codec_info(spec, dtype, op))


def codec_wire_bytes(spec: str, count: int, dtype: str = "float32") -> int:
    """Bytes of ``count`` values on the wire, headers not counted."""
    return _core.codec_wire_bytes(spec, count, dtype)


def codec_error_bound(spec: str, absmax: float, dtype: str = "float32") -> float:
    """How far one coding may move a value of a block whose largest magnitude is ``absmax``.

    The bound of a collective's result follows from its plan: ``Communicator.error_bound``.
    """
    bounds = np.empty(1)
    _core.codec_error_bounds(spec, dtype, np.array([absmax], np.float64), bounds)
    return float(bounds[0])
