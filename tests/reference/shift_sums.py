"""Sums of payloads with +shiftadd, from docs/codecs.md ("The modifier +shiftadd") alone: exact
fractions, one rounding by name. Plain Python, no code of tersum's.
"""

from __future__ import annotations

import math
from fractions import Fraction

import block_rotation
from code_packing import ceil_div, code_bytes, unpack_codes
from decode_slice import read_scales
from float_rounding import float32
from format_table import Format, Spec, parse_spec


def unit_exponent(format: Format, tops: list[int]) -> int:
    """Of a block: the largest exponent less the most that a code may be shifted."""
    carry = math.ceil(math.log2(len(tops)))
    return max(max(tops) - (32 - format.bits - carry), format.exponent)


def block_sum(format: Format, scales: list[float], codes: list[list[int]]) -> list[float]:
    """One block: a scale and codes of each rank."""
    if any(math.isnan(scale) for scale in scales):
        return [math.nan] * len(codes[0])
    exponents = [math.frexp(scale)[1] - 1 for scale in scales]
    unit = unit_exponent(format, exponents)
    sums = []
    for column in zip(*codes, strict=True):
        units = 0
        for code, exponent in zip(column, exponents, strict=True):
            # Fraction rounds ties to even.
            units += round(Fraction(int(format.levels[code])) * Fraction(2) ** (exponent - unit))
        sums.append(float32(float32(units) * 2.0**unit))
    return sums


def coded_sum(text: str, count: int, payloads: list[bytes]) -> list[float]:
    """Of the ranks' payloads, as it is coded: with +hadamard not turned back."""
    spec: Spec = parse_spec(text)
    format = spec.format
    assert format is not None and spec.shiftadd
    blocks = ceil_div(count, spec.block)
    scales = [read_scales(spec, format, payload, blocks) for payload in payloads]
    cut = code_bytes(format, count)
    codes = [unpack_codes(format, payload[len(payload) - cut :], count) for payload in payloads]
    out: list[float] = []
    for block in range(blocks):
        part = slice(block * spec.block, (block + 1) * spec.block)
        here = [[code for code in rank[part] if code is not None] for rank in codes]
        out += block_sum(format, [rank[block] for rank in scales], here)
    return out


def plain_sum(text: str, count: int, payloads: list[bytes]) -> list[float]:
    """What a sum that is not coded again comes to, without the limit of a decoded slice."""
    spec = parse_spec(text)
    sums = coded_sum(text, count, payloads)
    if not spec.hadamard:
        return sums
    out: list[float] = []
    for begin in range(0, count, spec.block):
        part = sums[begin : begin + spec.block]
        out += block_rotation.back(part) if len(part) == spec.block else part
    return out
