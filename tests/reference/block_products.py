"""The matrices of +kronecker: docs/codecs.md, "The modifier +kronecker", and docs/wire-format.md,
"Files of +kronecker". Python's float is the document's float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from float_rounding import LARGEST_BITS, float32, float_of

Matrix = list[list[float]]
FLOAT32_MAX = float_of(LARGEST_BITS["float32"])
DAMP = 2.0**-40
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "codec" / "transforms"


def norm(matrix: Matrix) -> float:
    """The 1-norm."""
    sums = [0.0] * len(matrix)
    for row in matrix:
        for column, x in enumerate(row):
            sums[column] += abs(x)
    return max(sums)


def scaled(matrix: Matrix) -> Matrix:
    """By the power of two that brings the norm into (1/4, 1/2]."""
    exponent = 0
    top = Fraction(norm(matrix))
    while top * Fraction(2) ** exponent > Fraction(1, 2):
        exponent -= 1
    while top * Fraction(2) ** exponent <= Fraction(1, 4):
        exponent += 1
    return [[float32(math.ldexp(x, exponent)) for x in row] for row in matrix]


def inverse(matrix: Matrix) -> Matrix:
    """By elimination in float64, then as float32."""
    side = len(matrix)
    rows = [[*row, *(float(i == r) for i in range(side))] for r, row in enumerate(matrix)]
    for column in range(side):
        pivot = max(range(column, side), key=lambda r: (abs(rows[r][column]), -r))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        divisor = rows[column][column]
        rows[column] = [x / divisor for x in rows[column]]
        for r in range(side):
            factor = rows[r][column]
            if r != column:
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[column], strict=True)]
    return [[float32(x) for x in row[side:]] for row in rows]


def product(left: Matrix, right: Matrix) -> Matrix:
    """Each number a sum in the order of its terms, rounded to float32 at every step."""
    out = []
    for row in left:
        sums = [float32(row[0] * x) for x in right[0]]
        for factor, line in zip(row[1:], right[1:], strict=True):
            sums = [float32(s + float32(factor * x)) for s, x in zip(sums, line, strict=True)]
        out.append(sums)
    return out


def turned(matrix: Matrix) -> Matrix:
    """Transposed."""
    return [list(column) for column in zip(*matrix, strict=True)]


def multiplied(left: Matrix, right: Matrix, block: list[float]) -> list[float]:
    """left^T X right."""
    width = len(right)
    x = [block[i : i + width] for i in range(0, len(block), width)]
    return [value for row in product(product(turned(left), x), right) for value in row]


@dataclass(frozen=True)
class Transform:
    """What a file says, made ready."""

    p1: Matrix
    p2: Matrix
    q1: Matrix
    q2: Matrix
    factors: list[float]  #: of the channels; one 1 where there are none
    undo: list[float]
    reach: float  #: R of the document

    @property
    def block(self) -> int:
        """Values of a block."""
        return len(self.p1) * len(self.p2)

    def there(self, values: list[float], first: int) -> list[float]:
        """A slice whose first value has that index in its array, as it is coded."""
        flat = self.times(values, self.factors, first)
        whole = len(flat) // self.block * self.block
        out: list[float] = []
        for begin in range(0, whole, self.block):
            out += multiplied(self.p1, self.p2, flat[begin : begin + self.block])
        return out + flat[whole:]

    def is_damped(self, block: list[float]) -> bool:
        """Do its sums need room on the way back?"""
        finite = all(math.isfinite(y) for y in block)
        return finite and self.reach * max(abs(y) for y in block) > FLOAT32_MAX / 2

    def back(self, values: list[float], first: int) -> list[float]:
        """The slice as it was, not yet limited."""
        out: list[float] = []
        for begin in range(0, len(values), self.block):
            block = values[begin : begin + self.block]
            damp = DAMP if self.is_damped(block) else 1.0
            y = [float32(value * damp) for value in block]
            if len(y) == self.block:
                y = multiplied(self.q1, self.q2, y)
            out += [float32(x / damp) for x in self.times(y, self.undo, first + begin)]
        return out

    @staticmethod
    def times(values: list[float], factors: list[float], first: int) -> list[float]:
        """Each value times the factor of its channel."""
        return [float32(x * factors[(first + i) % len(factors)]) for i, x in enumerate(values)]


def words(file: Path) -> list[str]:
    """Of a file, without its comments."""
    lines = (line.partition("#")[0] for line in file.read_text().splitlines())
    return [word for line in lines for word in line.replace(",", " ").split()]


def square(numbers: list[float], side: int) -> Matrix:
    """The matrix whose rows follow each other."""
    return [numbers[i : i + side] for i in range(0, side * side, side)]


@cache
def read_transform(digest: str) -> Transform:
    """Of the golden file that the digest names."""
    magic, version, *rest = words(GOLDEN / f"{digest}.txt")
    if (magic, version) != ("tersum-kronecker", "1"):
        raise ValueError(f"{digest}: {magic} {version}")
    rows, columns, channels = (int(word) for word in rest[:3])
    numbers = [float32(float(word)) for word in rest[3:]]
    if len(numbers) != rows**2 + columns**2 + channels:
        raise ValueError(f"{digest}: {len(numbers)} numbers")
    p1 = scaled(square(numbers, rows))
    p2 = scaled(square(numbers[rows**2 :], columns))
    q1, q2 = inverse(p1), inverse(p2)
    factors = numbers[len(numbers) - channels :] or [1.0]
    exponent = math.frexp(max(abs(f) for f in factors))
    shift = exponent[1] - (1 if exponent[0] == 0.5 else 0)
    factors = [math.ldexp(f, -shift) for f in factors]
    undo = [float32(1 / f) for f in factors]
    reach = norm(q1) * norm(q2) * max(abs(u) for u in undo)
    return Transform(p1, p2, q1, q2, factors, undo, reach)
