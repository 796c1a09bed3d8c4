"""Specs, data and bounds of the tests that hold errors to a simulation."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tersum.codecs import codec_info

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

from block_products import GOLDEN as TRANSFORMS
from format_table import ALL, TABLES
from simulate_codecs import make_data, relative_error, two_step

Data = np.ndarray[Any, Any]
RANKS = 8
COUNT = 1 << 15
SEED = 20260
MODIFIERS = ("", "+hadamard", "+sparse:0.5%")
#: From now on known by their digests, as the simulation names them.
TABLE_SPECS = [codec_info(f"table:{file}").spec for file in TABLES]
#: Matrices of 1 x 64 and of 8 x 16, the latter with factors for 96 channels.
TURNED = codec_info(f"int6/64+kronecker:{TRANSFORMS / '1a5ca1a8782ff8dc.txt'}").spec
OF_CHANNELS = codec_info(f"int4/128+kronecker:{TRANSFORMS / '0982c0cfdb4747e8.txt'}").spec
SPECS = [f"{format.name}{modifier}" for format in ALL for modifier in MODIFIERS]
SPECS += [f"int{bits}+mixed" for bits in range(3, 8)]
SPECS += ["int6+hadamard+mixed", "int4/64+adaptive", "nf4/128+adaptive"]
SPECS += ["mxint8+shiftadd", "shiftadd/32", "int6/128+hadamard+shiftadd", "int4/32+shiftadd"]
SPECS += [f"{format.name}+floor" for format in ALL if format.name.startswith("mx")]
SPECS += ["mxfp6:e2m3+hadamard+floor", "shiftadd/32+floor", TURNED]
#: How far the simulation may be off.
WITHIN = {"normal": 0.03, "grad": 0.06, "act": 0.12}


@cache
def data_of(kind: str, ranks: int, count: int = COUNT) -> Data:
    """One row a rank."""
    return make_data(kind, ranks, count, SEED)


@cache
def repeated(kind: str) -> Data:
    """The same 4,096 values 64 times: what is random in the error of a sum is then averaged over
    64 roundings, also where a handful of large values make the most of it."""
    return np.tile(data_of(kind, RANKS, 1 << 12), (1, 64))


@cache
def simulated(spec: str, kind: str) -> float:
    """The error of the two-step plan on 8 ranks, by the simulation; with +sr of repeated data."""
    data = repeated(kind) if spec.endswith("+sr") else data_of(kind, RANKS)
    return relative_error(two_step(spec, data), data)
