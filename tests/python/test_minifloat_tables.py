"""Every code of every minifloat, and the casts to them, against ml_dtypes: 0 wrong.

Elements are coded at scale 1, which a block gets whose largest magnitude is the largest level.

Reference line: section 5, "Check": minifloat encoders against tables enumerated from the
specifications, 0 wrong. Every code is held here, and 60,000 conversions of each format.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tersum.codecs import decode_payload, encode_payload

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

from code_packing import pack_codes, unpack_codes
from format_table import FORMATS, Format

ml_dtypes = pytest.importorskip("ml_dtypes")

#: A format, what ml_dtypes calls its elements, and a scale of 1 on the wire.
ELEMENTS = {
    "fp8e4m3": ("float8_e4m3fn", b"\x80\x3f"),
    "fp8e5m2": ("float8_e5m2", b"\x80\x3f"),
    "mxfp8:e4m3": ("float8_e4m3fn", b"\x7f"),
    "mxfp8:e5m2": ("float8_e5m2", b"\x7f"),
    "mxfp6:e2m3": ("float6_e2m3fn", b"\x7f"),
    "mxfp6:e3m2": ("float6_e3m2fn", b"\x7f"),
    "mxfp4": ("float4_e2m1fn", b"\x7f"),
}
BLOCK = 32
ONE = struct.pack("<f", 1.0)
SEED = 7


def type_of(name: str) -> Any:
    """A type of ml_dtypes; the test is skipped where this release of it lacks the type."""
    if not hasattr(ml_dtypes, name):
        pytest.skip(f"ml_dtypes {ml_dtypes.__version__} has no {name}")
    return getattr(ml_dtypes, name)


def payload_of(format: Format, scale: bytes, codes: list[int]) -> bytes:
    """Blocks of 32 that all have one scale."""
    return scale * -(-len(codes) // BLOCK) + pack_codes(format, codes)


def spec_of(format: Format) -> str:
    """In blocks of 32."""
    return f"{format.name}/{BLOCK}"


@pytest.mark.parametrize("name", ELEMENTS)
def test_every_code_stands_for_its_number(name: str) -> None:
    type_name, scale = ELEMENTS[name]
    format = FORMATS[name]
    table = np.arange(1 << format.bits, dtype=np.uint8).view(type_of(type_name)).astype(np.float32)
    codes = [code for code, level in enumerate(table) if np.isfinite(level)]
    decoded = decode_payload(payload_of(format, scale, codes), spec_of(format), len(codes))
    assert decoded.tobytes() == table[codes].tobytes()
    # What is no number is refused, by the number of its value.
    for code in set(range(1 << format.bits)) - set(codes):
        with pytest.raises(ValueError, match="value 1 "):
            decode_payload(payload_of(format, scale, [0, code]), spec_of(format), 2)


@pytest.mark.parametrize("name", ELEMENTS)
def test_random_values_are_cast_as_ml_dtypes_casts(name: str) -> None:
    type_name, scale = ELEMENTS[name]
    format = FORMATS[name]
    element = type_of(type_name)
    random = np.random.default_rng(SEED)
    largest = format.largest
    wide = random.uniform(-largest, largest, 31 * 1024)
    small = random.uniform(-1, 1, 31 * 1024) * np.exp2(random.integers(-20, 1, 31 * 1024))
    midway = np.repeat(np.array(sorted({x for x in format.levels if abs(x) <= largest})), 2)
    ties = np.resize((midway[:-1] + midway[1:]) / 2, 31 * 64)
    values = np.concatenate([wide, small * largest, ties]).astype(np.float32).reshape(-1, 31)
    values = np.append(values, np.full((len(values), 1), np.float32(largest)), 1).reshape(-1)
    payload = encode_payload(values, spec_of(format))
    blocks = values.size // BLOCK
    assert payload[: blocks * len(scale)] == scale * blocks
    codes = unpack_codes(format, payload[blocks * len(scale) :], values.size)
    expected = values.astype(element).view(np.uint8)
    wrong = np.flatnonzero(np.array(codes) != expected)
    assert wrong.size == 0, f"{wrong.size} wrong, the first {values[wrong[:4]]}; seed {SEED}"


def test_e8m0_scales_stand_for_what_ml_dtypes_says() -> None:
    table = np.arange(256, dtype=np.uint8).view(type_of("float8_e8m0fnu")).astype(np.float32)
    one = FORMATS["mxfp4"].levels.index(1.0)
    for byte, expected in enumerate(table):
        payload = payload_of(FORMATS["mxfp4"], bytes([byte]), [one])
        got = decode_payload(payload, "mxfp4", 1)
        assert np.array_equal(got, [expected], equal_nan=True), byte


def test_e4m3_scales_stand_for_what_ml_dtypes_says() -> None:
    table = np.arange(128, dtype=np.uint8).view(type_of("float8_e4m3fn")).astype(np.float32)
    format = FORMATS["nvfp4"]
    for byte, expected in enumerate(table):
        payload = ONE + bytes([byte]) + pack_codes(format, [format.levels.index(1.0)])
        got = decode_payload(payload, "nvfp4", 1)
        assert np.array_equal(got, [expected], equal_nan=True), byte
    for byte in range(128, 256):
        with pytest.raises(ValueError, match="block 0"):
            decode_payload(ONE + bytes([byte]) + b"\0", "nvfp4", 1)


def test_e4m3_scales_are_rounded_as_ml_dtypes_rounds() -> None:
    e4m3 = type_of("float8_e4m3fn")
    random = np.random.default_rng(SEED)
    blocks = 1024
    absmax = np.float32(2688) * random.uniform(0, 1, blocks).astype(np.float32) ** 4
    # The slice's scale is then 1.
    absmax[0] = 2688
    values = np.zeros((blocks, 16), np.float32)
    values[:, 3] = absmax
    payload = encode_payload(values, "nvfp4")
    assert payload[:4] == ONE
    expected = (absmax / np.float32(6)).astype(e4m3).view(np.uint8)
    assert payload[4 : 4 + blocks] == expected.tobytes()
