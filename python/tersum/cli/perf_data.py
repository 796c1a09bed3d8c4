"""Inputs that every rank can make again, and the float64 result that outputs are held against.

Values are N(0, 1) (integers: uniform in -1000..1000, uint8 in 0..15): zeros would flatter codecs,
whose all-zero blocks skip the division. Data comes in runs of ``_RUN`` elements, each with a random
generator of its own (seed, rank, run), so that the oracle needs no rank's memory but its own.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tersum.cli.command_error import CommandError

_RUN = 1 << 20
#: Blocks of 32 to 1024 elements are unions of these.
GRAIN = 32

Values = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class Oracle(NamedTuple):
    """The exact result of one call, with what bounds need."""

    expected: Floats  # count elements
    absmax: Floats  # per grain: the largest magnitude that any rank holds
    sum_absmax: Floats  # per grain: the largest magnitude of the exact result


def element_type(dtype: str) -> np.dtype[Any]:
    """NumPy's type of that name; bfloat16 is ml_dtypes'."""
    if dtype != "bfloat16":
        return np.dtype(dtype)
    try:
        import ml_dtypes
    except ImportError:
        raise CommandError("--dtype bfloat16 needs ml_dtypes: pip install ml_dtypes") from None
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def make_values(count: int, dtype: str, seed: int, rank: int) -> Values:
    """The input of ``rank``."""
    values = np.empty(count, element_type(dtype))
    for begin in range(0, count, _RUN):
        end = min(begin + _RUN, count)
        values[begin:end] = _run_values(end - begin, dtype, seed, rank, begin // _RUN)
    return values


def _run_values(count: int, dtype: str, seed: int, rank: int, run: int) -> Values:
    generator = np.random.Generator(np.random.Philox(key=[seed, (rank << 40) + run]))
    kind = element_type(dtype)
    if dtype == "uint8":
        return generator.integers(0, 16, count, dtype=np.uint8)
    if kind.kind == "i":
        return generator.integers(-1000, 1001, count).astype(kind)
    if dtype == "float64":
        return generator.standard_normal(count)
    return generator.standard_normal(count, dtype=np.float32).astype(kind, copy=False)


def make_oracle(count: int, dtype: str, seed: int, ranks: range, redop: str) -> Oracle:
    """The exact ``redop`` of the inputs of ``ranks``."""
    grains = -(-count // GRAIN)
    oracle = Oracle(np.empty(count), np.empty(grains), np.empty(grains))
    for begin in range(0, count, _RUN):
        end = min(begin + _RUN, count)
        parts = [
            _run_values(end - begin, dtype, seed, rank, begin // _RUN).astype(np.float64)
            for rank in ranks
        ]
        expected = _reduce(parts, redop)
        oracle.expected[begin:end] = expected
        first, last = begin // GRAIN, -(-end // GRAIN)
        largest = np.maximum.reduce([np.abs(part) for part in parts])
        oracle.absmax[first:last] = block_max(largest, GRAIN)
        oracle.sum_absmax[first:last] = block_max(np.abs(expected), GRAIN)
    return oracle


def _reduce(parts: list[Floats], redop: str) -> Floats:
    if redop in ("max", "min"):
        extreme = np.maximum if redop == "max" else np.minimum
        return np.asarray(extreme.reduce(parts), np.float64)
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total / len(parts) if redop == "avg" else total


def block_max(values: Floats, block: int) -> Floats:
    """The largest of every ``block`` values in turn; the last block may be shorter."""
    whole = len(values) // block * block
    result = values[:whole].reshape(-1, block).max(axis=1)
    return result if whole == len(values) else np.append(result, values[whole:].max())


_ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def rounding_slack(oracle: Oracle, dtype: str, ranks: int, *, native_sums: bool) -> Floats:
    """Per grain, what floating point itself may lose: one rounding per addition, of a sum of at
    most ``ranks`` times the largest value, and one to the element type. Integers lose nothing.

    ``native_sums``: the library adds in the element type, not in float32.
    """
    if dtype not in _ROUNDING:
        return np.zeros_like(oracle.absmax)
    unit = _ROUNDING[dtype]
    addition = unit if native_sums else min(unit, _ROUNDING["float32"])
    return ranks * addition * ranks * oracle.absmax + unit * oracle.sum_absmax


def count_wrong(result: Values, oracle: Oracle, bound: Floats) -> int:
    """Elements farther from the oracle than ``bound`` (per grain) allows; NaN counts."""
    wrong = 0
    for begin in range(0, len(result), _RUN):
        end = min(begin + _RUN, len(result))
        error = np.abs(result[begin:end].astype(np.float64) - oracle.expected[begin:end])
        allowed = np.repeat(bound[begin // GRAIN : -(-end // GRAIN)], GRAIN)[: end - begin]
        wrong += int(np.count_nonzero(~(error <= allowed)))
    return wrong


def relative_error(result: Values, oracle: Oracle) -> float:
    """``|result - expected| / |expected|`` in the Euclidean norm."""
    error = norm = 0.0
    for begin in range(0, len(result), _RUN):
        expected = oracle.expected[begin : begin + _RUN]
        difference = result[begin : begin + _RUN].astype(np.float64) - expected
        error += float(difference @ difference)
        norm += float(expected @ expected)
    return (error / norm) ** 0.5 if norm > 0 else float(error > 0)


def digest(values: Values) -> bytes:
    """32 bytes that are the same on two ranks only if the values' bytes are."""
    data = np.ascontiguousarray(values).view(np.uint8).data
    return hashlib.blake2b(data, digest_size=32).digest()
