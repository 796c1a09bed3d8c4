"""What +flatten learns of channels, in NumPy, from docs/codecs.md. No code of tersum's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from simulate_codecs import Array, two_step

ROWS_MIN = 16
ROWS_REMEMBERED = 192
ROWS_OBSERVED = 256
FLOOR = 0.01


def to_bf16(values: Array) -> Array:
    """The nearest bfloat16 of positive numbers, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


class FlattenState:
    """One call site."""

    def __init__(self, channels: int) -> None:
        self.rows = 0
        self.mean_squares: Array = np.zeros(channels)

    def observe(self, sums: npt.NDArray[np.floating]) -> None:
        rows = sums.reshape(-1, self.mean_squares.size).astype(np.float64)
        rows = rows[:: -(-len(rows) // ROWS_OBSERVED)]
        squares = np.zeros_like(self.mean_squares)
        for row in rows:  # one after the other: the order is part of the definition
            squares += row * row
        if not np.isfinite(squares).all():
            return
        before = min(self.rows, ROWS_REMEMBERED)
        self.mean_squares = (self.mean_squares * before + squares) / (before + len(rows))
        self.rows += len(rows)

    def saved(self, calls: int) -> bytes:
        """The state as a saved file holds it."""
        counts = np.array([calls, self.rows], "<u8")
        return counts.tobytes() + self.mean_squares.astype("<f8").tobytes()

    def factors(self) -> Array:
        """What values are multiplied by before the Hadamard transform."""
        mean = self.mean_squares.mean()
        if self.rows < ROWS_MIN or mean == 0:
            return np.ones_like(self.mean_squares)
        d = to_bf16(np.sqrt(self.mean_squares / mean + FLOOR))
        return np.asarray(np.sqrt(d.min() / d))


def two_step_flattened(base: str, data: npt.NDArray[np.float32], state: FlattenState) -> Array:
    """As ``two_step`` of ``base`` with +flatten; the state learns from it."""
    factors = np.tile(state.factors(), data.shape[1] // state.mean_squares.size)
    result = two_step(f"{base}+hadamard", (data * factors).astype(np.float32)) / factors
    state.observe(result)
    return np.asarray(result)
