"""Weighted k-means in one dimension by the whole of its dynamic programme, in NumPy: what the
core's levels are held to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

BINS = 1024

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def best_levels(parts: Doubles, importance: Doubles, levels: int) -> Floats:
    """Weighted k-means in one dimension. The cost of one level for the bins i to j - 1 follows from
    running sums; best[j] after k levels is the least of best[i] after k - 1 and that cost."""
    where = np.clip(((parts + 1) * (BINS / 2)).astype(np.int64), 0, BINS - 1)
    weight = np.bincount(where, importance, BINS)
    first = np.bincount(where, importance * parts, BINS)
    second = np.bincount(where, importance * parts * parts, BINS)
    w, s, q = (np.concatenate([[0.0], np.cumsum(sums)]) for sums in (weight, first, second))
    in_run, sum_run = w[None] - w[:, None], s[None] - s[:, None]
    mean = np.divide(sum_run, in_run, out=np.zeros_like(in_run), where=in_run > 0)
    cost = np.maximum(q[None] - q[:, None] - mean * sum_run, 0)
    cost[np.tril_indices(BINS + 1, -1)] = np.inf  # from left to right
    best = cost[0].copy()
    starts = []
    for _ in range(levels - 1):
        total = best[:, None] + cost
        starts.append(total.argmin(0))
        best = total.min(0)
    found = []
    end = BINS
    for start in [*reversed(starts), np.zeros(BINS + 1, np.int64)]:
        begin = int(start[end])
        if in_run[begin, end] > 0:
            found.append(mean[begin, end])
        end = begin
    return _complete(found, levels)


def _complete(found: list[float], levels: int) -> Floats:
    """Ascending; as many as asked for, where there were fewer different values: the others lie
    where in [-1, 1] the next level is furthest."""
    # What is nearer to 0 than a bin's half is 0: zeros are often exact, and should stay so.
    kept = sorted({np.float32(0.0 if abs(level) < 1 / BINS else level) for level in found})
    while len(kept) < levels:
        halves = [(b - a) / np.float32(2) for a, b in pairwise(kept)]
        places = [np.float32(-1), *(a + h for a, h in zip(kept, halves, strict=False))]
        places.append(np.float32(1))
        distances = [kept[0] + np.float32(1), *halves, np.float32(1) - kept[-1]]
        kept = sorted([*kept, places[int(np.argmax(distances))]])
    return np.array(kept, np.float32)


def observed_blocks(blocks: int, most: int) -> list[int]:
    """Which of so many blocks are looked at (docs/codecs.md, kmeans:K)."""
    parts = min(blocks, most)
    found = []
    for part in range(parts):
        begin, end = part * blocks // parts, (part + 1) * blocks // parts
        found.append(begin + mix(part) % (end - begin))
    return found


def mix(h: int) -> int:
    """The finalizer of SplitMix64."""
    mask = 2**64 - 1
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & mask
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB & mask
    return h ^ (h >> 31)
