"""What "+kronecker:…" is trained and judged on: captured calls, cut into blocks, and some of them
kept apart.

Pure functions over files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tersum._captured_calls import CapturedSite
from tersum._kronecker_training import Blocks
from tersum.errors import InvalidArgumentError

Floats = npt.NDArray[np.float32]

CHANNELS_MAX = 65_536
#: One call in so many is held out, and at least one.
_HELD_OUT = 4
#: Drawn from all calls together. Twice as many change a trained error by less than 1 %.
_BLOCKS_MAX = 1 << 16
_NOTHING = (
    "there is nothing to learn from and to judge by: it takes two calls of a site, or a longer "
    "one, finite and not 0, with whole blocks; capture more"
)


class Data(NamedTuple):
    """Of all sites."""

    blocks: Blocks  #: of the calls that are learned from
    learned: int  #: how many these are
    held_out: list[Floats]  #: calls, each ``[ranks, count]``


def common_channels(sites: Sequence[CapturedSite]) -> int:
    """Of all sites; 0 where they differ or are not known."""
    found = {
        site.channels if site.channels and site.count % site.channels == 0 else 0 for site in sites
    }
    channels = found.pop()
    return channels if not found and 2 <= channels <= CHANNELS_MAX else 0


def read_data(sites: Sequence[CapturedSite], channels: int, block: int, seed: int) -> Data:
    """Blocks of a drawn part of the calls, and the others as they are. Value i of an array has the
    factor i modulo ``channels``."""
    random = np.random.default_rng([seed, 2])
    calls = sum(max(_whole_calls(site) - 1, 1) for site in sites)
    share = max(_BLOCKS_MAX // max(calls, 1), 16)
    parts: list[Blocks] = []
    held_out: list[Floats] = []
    for site in sites:
        for call, is_learned in _split(site, math.lcm(channels, block)):
            if not is_learned:
                held_out.append(call)
            elif call.shape[1] >= block:
                parts.append(_draw_blocks(call, channels, block, share, random))
    if not parts or not held_out:
        raise InvalidArgumentError(_NOTHING)
    values, places, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Data(Blocks(values, places, weights), len(parts), held_out)


def _whole_calls(site: CapturedSite) -> int:
    return sum(len(call.files) == site.ranks for call in site.calls)


def _split(site: CapturedSite, unit: int) -> Iterator[tuple[Floats, bool]]:
    """A site's calls, and whether they are learned from. The last ones are held out; of a lone call
    it is the last quarter of its values, from a multiple of ``unit`` on."""
    count = _whole_calls(site)
    first_apart = count - max(1, count // _HELD_OUT)
    for number, call in enumerate(site.inputs(site.ranks)):
        cut = site.count * (_HELD_OUT - 1) // _HELD_OUT // unit * unit
        halves = [(call[:, :cut], True), (call[:, cut:], False)]
        for part, is_learned in halves if count == 1 else [(call, number < first_apart)]:
            if np.isfinite(part).all() and part.sum(0).any():
                yield part, is_learned


def _draw_blocks(
    call: Floats, channels: int, block: int, share: int, random: np.random.Generator
) -> Blocks:
    """Of contributions, of which an owner adds all but its own coded, and of the sum, which is
    coded once. The call is scaled so that its sum's mean square is 1: relative errors count."""
    ranks, count = call.shape
    total = call.sum(0, dtype=np.float64)
    size = math.sqrt(float(np.square(total).mean()))
    every = np.concatenate([call, total[None].astype(np.float32)])
    in_row = count // block
    drawn = random.permutation(in_row * (ranks + 1))[:share]
    rows, begins = drawn // in_row, drawn % in_row * block
    places = begins[:, None] + np.arange(block)
    values = (every[rows[:, None], places] / np.float32(size)).astype(np.float32)
    times = np.where(rows == ranks, 1.0, (ranks - 1) / ranks)
    # Each drawn block stands for others; their squared errors' sum is the call's relative one.
    stands_for = in_row * (ranks + 1) / len(drawn) / (in_row * block)
    return Blocks(
        values, (places % channels).astype(np.int32), (times * stands_for).astype(np.float32)
    )


def in_rows(calls: Sequence[Floats], channels: int) -> Iterator[Floats]:
    """Each as ``[ranks, rows, channels]``, where that is known."""
    for call in calls:
        yield call.reshape(len(call), -1, channels) if channels else call
