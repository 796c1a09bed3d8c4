"""What formats do to data, simulated in NumPy from docs/codecs.md: for errors, not for bytes.

Quantizers work in float64 on whole arrays; a handful of values in a million may take the other of
two equally near codes. No code of tersum's. Functions are pure.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from block_layouts import SECTION as LAYOUT_SECTION
from block_layouts import WIDEST, choose_cuts, choose_map
from block_rotation import signs
from format_table import Format, Spec, parse_spec
from paired_sums import HALVES
from relative_scales import OCTAVE, STEP, STEP_MOST, goes_down
from sparse_sections import SECTION, outlier_count

Array = npt.NDArray[np.float64]
Random = np.random.Generator | None
#: Values that repeat their channels, and the channels that stick out.
CHANNELS = 4096
OUTLIERS = (5, 1030, 2222, 4001)


def make_data(kind: str, ranks: int, count: int, seed: int) -> npt.NDArray[np.float32]:
    """``normal``; ``grad``: a log-normal(1.5) magnitude per element, shared by the ranks; ``act``:
    four channels of 4,096 a hundred times as large; ``identical``: the same on all ranks;
    ``spikes``: 0.1 % of the places, others on each rank, a hundred times as large; ``segments``: as
    ``grad``, a magnitude to 256 values; ``tokens``: a log-normal(1) one to 1,000;
    ``outliers/N``: one channel of N a hundred times as large."""
    random = np.random.default_rng(seed)
    if kind == "identical":
        return np.repeat(random.standard_normal((1, count)), ranks, 0).astype(np.float32)
    data = random.standard_normal((ranks, count))
    if kind == "grad":
        data *= np.exp(1.5 * random.standard_normal(count))
    if kind == "segments":
        data *= np.repeat(np.exp(1.5 * random.standard_normal(count // 256)), 256)
    if kind == "tokens":
        data *= np.repeat(np.exp(random.standard_normal(count // 1000 + 1)), 1000)[:count]
    if kind == "act":
        data[:, np.isin(np.arange(count) % CHANNELS, OUTLIERS)] *= 100
    if kind.startswith("outliers/"):
        data[:, :: int(kind.removeprefix("outliers/"))] *= 100
    if kind == "spikes":
        data[random.random((ranks, count)) < 0.001] *= 100
    return data.astype(np.float32)


def rotation(block: int) -> Array:
    """+hadamard: its transpose, divided by the block, leads there, itself back."""
    h = np.ones((1, 1))
    while len(h) < block:
        h = np.block([[h, h], [h, -h]])
    return h * np.array(signs(block))


@cache
def turns_of(text: str) -> tuple[Array, Array] | None:
    """Of a block as a row, there and back; without the channels' factors."""
    spec = parse_spec(text)
    if spec.kronecker is not None:
        there = np.kron(np.array(spec.kronecker.p1), np.array(spec.kronecker.p2))
        return there, np.linalg.inv(there)
    if spec.hadamard:
        back = rotation(spec.block)
        return back.T / spec.block, back
    return None


def factors_of(spec: Spec, count: int) -> Array:
    """What +kronecker multiplies the values of an array by, by their channels."""
    factors = np.array(spec.kronecker.factors if spec.kronecker else [1.0])
    return np.resize(factors, count)


def scales_of(format: Format, blocks: Array) -> Array:
    """One for each row."""
    absmax = np.abs(blocks).max(1)
    if format.scale == "mean":
        return np.abs(blocks).mean(1)
    wanted = absmax / format.largest
    mantissa, exponent = np.frexp(wanted)
    if format.scale == "e8m0":
        return np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))
    if format.scale == "e8m0 floor":
        return np.ldexp(1.0, np.frexp(absmax)[1] - np.frexp(format.largest)[1])
    if format.scale == "bf16":
        return np.ldexp(np.ceil(mantissa * 256) / 256, exponent)
    of_slice = absmax.max() / format.largest / 448
    mantissa, exponent = np.frexp(np.maximum(wanted / of_slice, 2.0**-20))
    # Three bits behind the leading one, and no step finer than 2^-9.
    step = np.ldexp(1.0, np.maximum(exponent - 4, -9))
    return np.round(wanted / of_slice / step) * step * of_slice


def nearest_bf16(values: Array) -> Array:
    """Eight significant bits, ties to even."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(mantissa * 256) / 256, exponent)


def quantize_sparse(spec: str, values: npt.NDArray[np.floating], random: Random) -> Array:
    """With +sparse: what bf16 leaves of an outlier is coded with the others unless it is larger
    than the least outlier."""
    parsed = parse_spec(spec)
    out = []
    for section in np.split(values.astype(np.float64), range(SECTION, values.size, SECTION)):
        count = outlier_count(section.size, parsed.sparse)
        taken = np.argsort(-np.abs(section), kind="stable")[:count]
        sent = nearest_bf16(section[taken])
        rest = section[taken] - sent
        left = section.copy()
        left[taken] = np.where(np.abs(rest) <= np.abs(section[taken]).min(), rest, 0)
        back = quantize(with_sparse(spec, 0), left, random)
        back[taken] += sent
        out.append(back)
    return np.concatenate(out)


def without(spec: str, modifier: str) -> str:
    """The spec less one of its modifiers."""
    return spec.replace(f"+{modifier}", "")


def in_sections(values: npt.NDArray[np.floating]) -> list[Array]:
    """Those of +mixed and +adaptive."""
    cuts = range(LAYOUT_SECTION, values.size, LAYOUT_SECTION)
    return np.split(values.astype(np.float64), cuts)


def quantize_mixed(spec: str, values: npt.NDArray[np.floating]) -> Array:
    """With +mixed: a bit more where it gains most, one less where it loses least, in pairs."""
    parsed = parse_spec(spec)
    assert parsed.format is not None
    bits, block = parsed.format.bits, parsed.block
    turn = "+hadamard" if parsed.hadamard else ""
    ways = [f"int{bits + more}/{block}{turn}" for more in (0, 1, -1)]
    out = []
    for section in in_sections(values):
        coded = [quantize(way, section).reshape(-1, block) for way in ways]
        errors = [((way - section.reshape(-1, block)) ** 2).sum(1) for way in coded]
        changes = np.array(choose_map(np.stack(errors, 1).tolist()))
        out.append(np.choose(changes[:, None], coded).reshape(-1))
    return np.concatenate(out)


def rounded_scales(format: Format, scales: Array, begins: Array) -> Array:
    """On the grid of +adaptive, each 1,024 values under their own power of two."""
    patterns = (scales.astype(np.float32).view(np.uint32) >> 16).astype(np.int64)
    groups = begins // WIDEST
    tops = np.zeros(groups.max() + 1, np.int64)
    np.maximum.at(tops, groups, patterns)
    tops = -(-tops // OCTAVE) * OCTAVE
    below = tops[groups] - patterns
    steps = np.minimum((below + goes_down(format)) // STEP, STEP_MOST)
    rounded = (tops[groups] - STEP * steps).astype(np.uint32) << 16
    return np.where(patterns > 0, rounded.view(np.float32), 0).astype(np.float64)


def quantize_adaptive(spec: str, values: npt.NDArray[np.floating]) -> Array:
    """With +adaptive: blocks where they pay, under scales of a byte."""
    parsed = parse_spec(spec)
    format = parsed.format
    assert format is not None
    out = []
    for section in in_sections(values):
        sizes = np.array(choose_cuts(parsed, section.tolist()))
        begins = np.cumsum(sizes) - sizes
        absmax = np.maximum.reduceat(np.abs(section), begins)
        scales = rounded_scales(format, scales_of(format, absmax[:, None]), begins)
        scale = np.repeat(scales, sizes)[: section.size]
        out.append(nearest_levels(format, section, scale))
    return np.concatenate(out)


def with_sparse(spec: str, hundredths: int) -> str:
    """The spec with another P, or without the modifier."""
    base, *modifiers = spec.split("+")
    rows = [text for text in modifiers if text.startswith("rows")]
    others = [text for text in modifiers if not text.startswith(("rows", "sparse"))]
    sparse = [f"sparse:{hundredths / 100:g}%"] if hundredths else []
    return "+".join([base, *rows, *sparse, *others])


def gathered(spec: str, ranks: int) -> str:
    """The codec of sums: room for the outliers of all ranks, up to a tenth of the values."""
    sparse = parse_spec(spec).sparse
    return with_sparse(spec, min(sparse * ranks, 1000)) if sparse else spec


def random_levels(format: Format, scaled: Array, random: np.random.Generator) -> Array:
    """Of the two levels around each value one, so that their mean is the value."""
    levels = np.unique([x for x in format.levels if abs(x) <= format.largest])
    below = np.clip(np.searchsorted(levels, scaled, "right") - 1, 0, len(levels) - 2)
    gaps = levels[below + 1] - levels[below]
    up = random.random(scaled.shape) < (scaled - levels[below]) / gaps
    taken: Array = levels[below + up]
    return taken


def nearest_levels(format: Format, values: Array, scales: Array) -> Array:
    """What values come back as under these scales, of which there may be fewer."""
    scaled = np.divide(values, scales, out=np.zeros_like(values), where=scales > 0)
    levels = np.unique([x for x in format.levels if abs(x) <= format.largest])
    if format.kind == "integer":
        nearest = np.clip(np.rint(scaled), -format.largest, format.largest)
    else:
        nearest = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, scaled)]
    back: Array = nearest * scales
    return back


def quantize_rows(spec: str, values: npt.NDArray[np.floating], random: Random) -> Array:
    """With +rows: each a slice of its own. Zeros fill the last block of a row, which no scale but
    a mean and no rotation may depend on."""
    parsed = parse_spec(spec)
    assert parsed.format is not None
    filled = -parsed.rows % parsed.block
    assert filled == 0 or not (parsed.hadamard or parsed.sparse or parsed.format.scale == "mean")
    whole = without(spec, f"rows:{parsed.rows}")
    rows = np.pad(values.reshape(-1, parsed.rows), ((0, 0), (0, filled)))
    return np.concatenate([quantize(whole, row, random)[: parsed.rows] for row in rows])


def quantize(spec: str, values: npt.NDArray[np.floating], random: Random = None) -> Array:
    """What is left of ``values`` after one coding; their number is a multiple of the block, or with
    +rows of the row. ``random``: of +sr."""
    parsed = parse_spec(spec)
    if parsed.rows:
        return quantize_rows(spec, values, random)
    if parsed.sparse:
        return quantize_sparse(spec, values, random)
    if parsed.mixed:
        return quantize_mixed(spec, values)
    if parsed.adaptive:
        return quantize_adaptive(spec, values)
    format = parsed.format
    assert format is not None
    blocks = values.astype(np.float64).reshape(-1, parsed.block)
    turns = turns_of(spec)
    if turns is not None:
        blocks = blocks @ turns[0]
    scales = scales_of(format, blocks)[:, None]
    if parsed.random:
        assert random is not None
        scaled = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0)
        decoded = random_levels(format, scaled, random) * scales
    else:
        decoded = nearest_levels(format, blocks, scales)
    return (decoded if turns is None else decoded @ turns[1]).reshape(-1)


def two_step(spec: str, data: npt.NDArray[np.float32], seed: int = 0) -> Array:
    """The sum over the ranks (rows): each owns a chunk, adds its own part as it is to what the
    others sent, and sends the sum on. With +shiftadd its own part is quantized, too. ``seed``: of
    +sr."""
    ranks, count = data.shape
    random = np.random.default_rng(seed)
    chunk = count // ranks
    result = np.empty(count)
    factors = factors_of(parse_spec(spec), count)
    data = (data * factors).astype(np.float32)
    sum_spec = gathered(spec, ranks)
    for owner in range(ranks):
        part = data[:, owner * chunk : (owner + 1) * chunk]
        total = part[owner].astype(np.float64)
        for rank in range(ranks):
            if rank != owner:
                total = total + quantize(spec, part[rank], random)
        if parse_spec(spec).shiftadd:
            total += quantize(spec, part[owner]) - part[owner]
        result[owner * chunk : (owner + 1) * chunk] = quantize(sum_spec, total, random)
    return np.asarray(result / factors)


def shared_sum(spec: str, data: npt.NDArray[np.float32], seed: int = 0) -> Array:
    """The sum over the ranks (rows) of integers under scales that they share; ``seed``: of +sr.
    With +hadamard of whole blocks, turned back once. With +rows, which the block divides or which
    are shorter than it, row by row."""
    parsed = parse_spec(spec)
    ranks, count = data.shape
    if 0 < parsed.rows < parsed.block:
        assert not parsed.hadamard
        filled = np.zeros((ranks, count // parsed.rows, parsed.block), np.float32)
        filled[:, :, : parsed.rows] = data.reshape(ranks, -1, parsed.rows)
        whole = shared_sum(without(spec, f"rows:{parsed.rows}"), filled.reshape(ranks, -1), seed)
        return whole.reshape(-1, parsed.block)[:, : parsed.rows].reshape(-1)
    assert parsed.rows % parsed.block == 0
    has_blocks = parsed.base == "sum8"
    levels = 127.0 if has_blocks else float(127 // ranks)
    if parsed.base == HALVES.name:
        has_blocks, levels = True, HALVES.largest
    turns = turns_of(spec)
    values = data.astype(np.float64).reshape(ranks, -1, parsed.block if turns else 1)
    if turns is not None:
        values = values @ turns[0]
    blocks = values.reshape(ranks, -1, parsed.block if has_blocks else count)
    mantissa, exponent = np.frexp(np.abs(blocks).max((0, 2)) / levels)
    scales = np.ldexp(np.ceil(mantissa * 256) / 256, exponent)[:, None]
    scaled = blocks / scales
    if parsed.base == HALVES.name:
        return (ranks * mean_of_pairs(scaled) * scales).reshape(-1)
    if parsed.random:
        codes = np.floor(scaled + np.random.default_rng(seed).random(scaled.shape))
    else:
        codes = np.rint(scaled)
    total = codes.sum(0) * scales
    if turns is not None:
        total = total.reshape(-1, parsed.block) @ turns[1]
    return np.asarray(total.reshape(-1))


def mean_of_pairs(scaled: Array) -> Array:
    """lut2: halves of a step, then means of two by two; in the middle of two levels the one nearer
    to the first."""
    # Level k + 1/2 has the number k, from -2 to 1.
    numbers = np.clip(np.floor(scaled), -2, 1)
    while len(numbers) > 1:
        first, second = numbers[::2], numbers[1::2]
        twice = first + second
        numbers = np.where(first > second, np.ceil(twice / 2), np.floor(twice / 2))
    mean: Array = numbers[0] + 0.5
    return mean


def nearest_power(values: Array, random: np.random.Generator) -> Array:
    """One of the two powers of two around each value, at random; 0 of 0."""
    mantissa, exponent = np.frexp(np.abs(values))
    up = random.random(values.shape) < 2 * mantissa - 1
    power: Array = np.sign(values) * np.ldexp(1.0, exponent - 1 + up)
    return power


def exponent_sum(data: npt.NDArray[np.float32], seed: int = 0) -> Array:
    """sum:exp without its least power: every value and every sum of two becomes a power."""
    random = np.random.default_rng(seed)
    mantissa, exponent = np.frexp(np.abs(data.astype(np.float64)).max())
    scale = np.ldexp(np.ceil(mantissa * 256) / 256, exponent)
    rows = [nearest_power(row / scale, random) for row in data.astype(np.float64)]
    while len(rows) > 1:
        pairs = len(rows) // 2
        sums = [nearest_power(rows[2 * i] + rows[2 * i + 1], random) for i in range(pairs)]
        rows = sums + rows[2 * pairs :]
    total: Array = rows[0] * scale
    return total


def relative_error(got: npt.ArrayLike, data: npt.NDArray[np.float32]) -> float:
    """Of a sum over the ranks, in the L2 norm."""
    exact = data.astype(np.float64).sum(0)
    return float(np.linalg.norm(np.asarray(got, np.float64) - exact) / np.linalg.norm(exact))
