"""What +flatten multiplies channels by, from docs/codecs.md ("The modifier +flatten", Factors).

Plain Python, every rounding by name; no code of tersum's. flatten_state.py beside it says what a
state learns, in NumPy.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from float_rounding import float32, round_to

ROWS_MIN = 16
FLOOR = 0.01


@dataclass(frozen=True)
class Factors:
    """f and u of the document, one for each channel."""

    forward: tuple[float, ...]
    undo: tuple[float, ...]

    @property
    def most(self) -> float:
        """What the way back multiplies by at most."""
        return max(self.undo)

    def there(self, values: list[float], first: int) -> list[float]:
        """Of values that begin at an index of their array."""
        channels = len(self.forward)
        return [float32(x * self.forward[(first + i) % channels]) for i, x in enumerate(values)]

    def back(self, values: list[float], first: int) -> list[float]:
        """The way back."""
        channels = len(self.undo)
        return [float32(x * self.undo[(first + i) % channels]) for i, x in enumerate(values)]


def state_bytes(rows: int, mean_squares: list[float]) -> bytes:
    """A state as it is saved, of which no call is known."""
    return struct.pack(f"<QQ{len(mean_squares)}d", 0, rows, *mean_squares)


def factors_of(state: bytes) -> Factors | None:
    """Of a saved state; None where it has none yet."""
    _, rows, *squares = struct.unpack(f"<QQ{len(state) // 8 - 2}d", state)
    total = 0.0
    for square in squares:
        total += square
    mean = total / len(squares)
    if rows < ROWS_MIN or mean == 0:
        return None
    roots = [float32(math.sqrt(square / mean + FLOOR)) for square in squares]
    d = [round_to("bfloat16", root) for root in roots]
    least = min(d)
    forward = tuple(float32(math.sqrt(float32(least / x))) for x in d)
    undo = tuple(float32(math.sqrt(float32(x / least))) for x in d)
    return Factors(forward, undo)
