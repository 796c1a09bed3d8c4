"""Is a loss curve within the spread of others? Pure functions on arrays.

Curves are averaged over windows of steps. In each window the runs of the plain wire, which differ
only in their seed, have a mean and a standard deviation. Two claims are judged:
  each run   of the tried wire lies within mean +- 2 sd in every window (the plain runs themselves
             lie within 1.16 sd, which is the most that one of three values can differ)
  their mean over the same seeds lies between the lowest and the highest plain run
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BAND_WIDTH = 2.0


@dataclass(frozen=True)
class Verdict:
    """Per window [windows]; `tried` is [runs, windows]."""

    first_steps: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    tried: np.ndarray

    @property
    def distance(self) -> np.ndarray:
        """Of each tried run from the plain mean, in standard deviations [runs, windows]."""
        apart: np.ndarray = np.abs(self.tried - self.mean) / self.deviation
        return apart

    @property
    def every_run_within(self) -> bool:
        return bool((self.distance <= BAND_WIDTH).all())

    @property
    def mean_within(self) -> bool:
        centre = self.tried.mean(axis=0)
        return bool(((self.lowest <= centre) & (centre <= self.highest)).all())


def judge(plain: np.ndarray, tried: np.ndarray, window_steps: int) -> Verdict:
    """Losses [runs, steps] of both kinds; steps past the last whole window are left out."""
    low, other = windows(plain, window_steps), windows(tried, window_steps)
    return Verdict(
        first_steps=np.arange(low.shape[1]) * window_steps,
        lowest=low.min(axis=0),
        highest=low.max(axis=0),
        mean=low.mean(axis=0),
        deviation=low.std(axis=0, ddof=1),
        tried=other,
    )


def windows(losses: np.ndarray, window_steps: int) -> np.ndarray:
    """Means over whole windows: [runs, steps] to [runs, windows]."""
    count = losses.shape[1] // window_steps
    if count == 0:
        raise ValueError(f"{losses.shape[1]} steps do not fill one window of {window_steps}")
    cut = losses[:, : count * window_steps]
    means: np.ndarray = cut.reshape(len(losses), count, window_steps).mean(axis=2)
    return means


def table(verdict: Verdict, plain_wire: str, tried_wire: str) -> str:
    head = (
        f"{'steps':>9}  {plain_wire + ': lowest .. highest':>26}  {'mean +- sd':>17}"
        f"  {tried_wire + ', each seed':>26}  {'most sd away':>12}"
    )
    lines = [head, "-" * len(head)]
    width = int(verdict.first_steps[1]) if len(verdict.first_steps) > 1 else 0
    for index, first in enumerate(verdict.first_steps):
        runs = " ".join(f"{value:.4f}" for value in verdict.tried[:, index])
        steps = f"{first + 1}-{first + width}" if width else f"{first + 1}-"
        lines.append(
            f"{steps:>9}  {verdict.lowest[index]:>13.4f} .. {verdict.highest[index]:<9.4f}"
            f"  {verdict.mean[index]:>8.4f} {verdict.deviation[index]:>8.4f}"
            f"  {runs:>26}  {verdict.distance[:, index].max():>12.2f}"
        )
    return "\n".join(lines)
