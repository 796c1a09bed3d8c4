"""What +clip:learned does to sums, simulated in NumPy from docs/codecs.md: for errors, not for
bytes. No code of tersum's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from clip_report import Part, Report
from float_rounding import float32
from format_table import Format, Spec, parse_spec
from learned_clip import Clips, Site
from simulate_codecs import Array, nearest_levels, scales_of, turns_of

#: Measured is the first of four tiles; slices are no longer than that here.
TILE = 3072
TILES_PER_MEASURED = 4
STEPS = 256


def in_blocks(format: Format, block: int, values: Array) -> Array:
    """What values come back as under scales of blocks."""
    blocks = values.reshape(-1, block)
    return nearest_levels(format, blocks, scales_of(format, blocks)[:, None]).reshape(-1)


def coded(spec: Spec, values: Array, held: bool, clip: float) -> tuple[Array, Part]:
    """A slice's values after coding, and what it reports; they are already turned."""
    format = spec.format
    assert format is not None and values.size <= TILES_PER_MEASURED * TILE
    scale = float32(clip / format.largest)
    of_blocks = in_blocks(format, spec.block, values)
    clipped = nearest_levels(format, values, np.array(scale))
    bits = int(np.abs(values).max().astype(np.float32).view(np.uint32))
    sums = [0, 0, 0]
    if scale > 0:
        x, y, z = (array[:TILE] for array in (values, clipped, of_blocks))
        measured = [(x - y) @ y, (x - y) @ (x - y), (x - z) @ (x - z)]
        sums = [round(float(total) / scale**2 * STEPS) for total in measured]
    return clipped if held else of_blocks, Part(1, bits, *sums).sent()


def two_step_clipped(text: str, data: npt.NDArray[np.float32], site: Site) -> Array:
    """As ``simulate_codecs.two_step`` of one call, from which the site learns."""
    spec = parse_spec(text)
    ranks, count = data.shape
    there, back_again = turns_of(text) or (np.eye(spec.block),) * 2
    coding = (data.astype(np.float64).reshape(-1, spec.block) @ there).reshape(data.shape)
    held = site.is_held(replicated=False)
    clips = Clips(float32(site.contributions.clip), float32(site.sums.clip), ranks)
    chunk, report = count // ranks, Report()
    result = np.empty(count)
    for owner in range(ranks):
        places = slice(owner * chunk, (owner + 1) * chunk)
        total, sent = coding[owner, places].copy(), Part(terms=1)
        for rank in set(range(ranks)) - {owner}:
            back, part = coded(spec, coding[rank, places], held, clips.contribution)
            total += back
            sent = sent.added(part)
        result[places], of_sum = coded(spec, total, held, clips.sum)
        report = report.added(Report(sent.sent(), of_sum))
    site.learn(report)
    turned: Array = (result.reshape(-1, spec.block) @ back_again).reshape(-1)
    return turned
