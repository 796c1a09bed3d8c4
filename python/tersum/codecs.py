"""What codecs cost and how wrong they can be, for callers who choose one. Pure functions.

A codec is named by a spec: ``exact``, ``bf16``, ``int8`` (128 values to a scale), ``int8/32``,
``int6+hadamard``, ``mxfp8:e5m2``, ``nf4``. Unknown ones raise InvalidArgumentError, which says what
is allowed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tersum import _core
from tersum._arrays import read_input


class CodecInfo(NamedTuple):
    """What a spec comes to for an element type and an operation."""

    spec: str  #: in normal form; ``exact`` where the codec asked for cannot serve
    dtype: str
    block: int  #: values that share a scale; 1 for formats without
    lossless: bool
    wire_bits: float  #: per value, scales included


class CodecSpeed(NamedTuple):
    """Multiples of memcpy's speed over the same bytes of float32; 0.5 takes twice as long."""

    encode: float
    decode_add: float  #: one contribution decoded and added to values of one's own


def known_codecs() -> list[str]:
    """The formats without block: ``exact``, ``bf16``, ``int8``, …"""
    return _core.known_codecs()


def is_auto(codec: str) -> bool:
    """Whether calls of ``codec`` choose one: ``"auto"``, or ``"auto:SPEC|SPEC|…"``."""
    return codec == "auto" or codec.startswith("auto:")


def auto_codecs(codec: str = "auto") -> list[str]:
    """Among which codecs a call of ``"auto"`` chooses, or of ``"auto:SPEC|SPEC|…"``, which names
    them: in normal form, by wire bits, falling. InvalidArgumentError says which spec is none,
    stands twice or cannot be chosen, and why."""
    return _core.auto_codecs(codec)


def codec_info(spec: str, dtype: str = "float32", op: str = "sum") -> CodecInfo:
    """What ``spec`` comes to for arrays of ``dtype`` under ``op``."""
    return CodecInfo(*_core.codec_info(spec, dtype, op))


def codec_wire_bytes(spec: str, count: int, dtype: str = "float32") -> int:
    """Bytes of ``count`` values on the wire, headers not counted."""
    return _core.codec_wire_bytes(spec, count, dtype)


def codec_sum_bits(spec: str, ranks: int, dtype: str = "float32") -> float:
    """Bits per value that an all-reduce of ``ranks`` ranks sends by the plan two_step: the mean of
    a contribution's and a finished sum's, and what ranks agree on before it. For long arrays."""
    return _core.codec_sum_bits(spec, ranks, dtype)


def encode_payload(x: object, spec: str, rounding: int = 0) -> bytes:
    """What the values of ``x``, in C order, are on the wire: ``codec_wire_bytes`` bytes.

    The payload holds neither the spec nor the number of values. A lossy spec with an element type
    that it cannot serve is the exact path, as in a collective.

    :param rounding: the key of the random numbers of ``+sr``, 0 to 2^64 - 1.
    """
    source = read_input(x)
    flat = np.ascontiguousarray(source.data).reshape(-1)
    return _core.encode_payload(spec, source.dtype, flat.view(np.uint8), rounding)


def decode_payload(
    payload: bytes, spec: str, count: int, dtype: str = "float32"
) -> npt.NDArray[Any]:
    """``count`` values from a payload; those of bfloat16 as uint16.

    A payload of another length, or with bytes that no encoder writes, raises InvalidArgumentError,
    which names the block or the value.
    """
    values = np.empty(count, np.uint16 if dtype == "bfloat16" else np.dtype(dtype))
    _core.decode_payload(spec, dtype, payload, values.view(np.uint8))
    return values


def codec_speed(spec: str, x: npt.ArrayLike, rounds: int = 25) -> CodecSpeed:
    """How fast ``spec`` is here, on one core, over the values of ``x`` as float32.

    The medians of ``rounds`` measurements, each taken beside one of memcpy over the same bytes:
    64 Ki values stay in a core's cache. Releases the GIL.
    """
    values = np.ascontiguousarray(x, np.float32).reshape(-1)
    return CodecSpeed(*_core.codec_speed(spec, values, rounds))


def codec_error_bound(spec: str, absmax: float, dtype: str = "float32") -> float:
    """How far one coding may move a value of a block whose largest magnitude is ``absmax``.

    The bound of a collective's result follows from its plan: ``Communicator.error_bound``.
    """
    bounds = np.empty(1)
    _core.codec_error_bounds(spec, dtype, np.array([absmax], np.float64), bounds)
    return float(bounds[0])
