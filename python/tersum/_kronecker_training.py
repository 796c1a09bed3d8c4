"""Trains the matrices and factors of "+kronecker:…" by gradient, with JAX.

What is lowered is the error of the decoded result: the squared error of one coding of contributions
and of one of their sum, as a two-step AllReduce has them, each call's divided by its sum's energy.
Rounding has no gradient; what is left over by it counts as a constant times the block's scale,
which has one ("straight through"). The start is a Hadamard transform and the factors 1/sqrt(rms) of
the channels, the best there is for values that are independent of each other.

Thread safety: pure functions. Equal inputs and seeds give equal results on one machine.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tersum.codecs import codec_info, decode_payload, encode_payload
from tersum.errors import InvalidArgumentError
from tersum.jax._jax_version import require_jax

Floats = npt.NDArray[np.float32]

#: Blocks looked at in one step; one block in so many is kept apart.
_BATCH = 2048
_APART = 8
#: The least factor of a channel's rms, as a part of the largest: a silent channel may wake.
_RMS_FLOOR = 1e-4
#: Adam's first rate, of matrices and of the logarithms of factors.
_RATE = 1e-2


class Transform(NamedTuple):
    """What :func:`tersum.register_kronecker` takes."""

    p1: Floats
    p2: Floats
    diagonal: Floats


class Blocks(NamedTuple):
    """What is learned from: whole blocks of values that are coded."""

    values: Floats  #: [blocks, block]
    channels: npt.NDArray[np.int32]  #: of each value
    weights: Floats  #: of each block's squared error


class Trained(NamedTuple):
    """What training came to. Losses are a block's mean weighted squared error, of blocks that were
    kept apart, as the model of the codec has it."""

    transform: Transform
    first_loss: float
    last_loss: float


class Grid(NamedTuple):
    """A format's levels, and how a block's scale follows from its largest magnitude."""

    levels: Floats
    top: float  #: the level that the largest magnitude is scaled to
    has_powers: bool  #: scales are powers of two, else bfloat16; both rounded up


#: Level by format; docs/codecs.md has them. Scales of formats that are not here follow from more
#: than a block's largest magnitude.
_TOPS = {f"int{bits}": 2.0 ** (bits - 1) - 1 for bits in range(2, 9)} | {
    "five": 2.0, "nf4": 1.0, "table": 1.0, "fp8e4m3": 448.0, "fp8e5m2": 57344.0,
    "mxfp8:e4m3": 448.0, "mxfp8:e5m2": 57344.0, "mxfp6:e2m3": 7.5, "mxfp6:e3m2": 28.0,
    "mxfp4": 6.0, "mxint8": 127.0,
}  # fmt: skip


def level_grid(spec: str) -> Grid:
    """Of a spec without modifiers; the levels are found by coding values of all sizes."""
    info = codec_info(spec)
    name = info.spec.partition("/")[0]
    name = "table" if name.startswith("table:") else name
    if "+" in info.spec or name not in _TOPS:
        raise InvalidArgumentError(
            f'codec "{info.spec}": matrices are trained for a format whose blocks are scaled by '
            "their largest magnitude, without modifiers, such as int4/128 or nf4/64"
        )
    sizes = np.concatenate([np.linspace(0, 1, 4097), 2.0 ** -np.arange(0, 40, 0.25)])
    probes = np.concatenate([sizes, -sizes]).astype(np.float32)
    per_block = info.block - 1
    blocks = np.ones((-(-probes.size // per_block), info.block), np.float32)
    blocks[:, 1:] = np.resize(probes, blocks[:, 1:].shape)
    top = _TOPS[name]
    flat = blocks.reshape(-1) * np.float32(top)  # the scale of each block is 1
    decoded = decode_payload(encode_payload(flat, info.spec), info.spec, flat.size)
    return Grid(np.unique(decoded + np.float32(0)), top, name.startswith("mx"))


def best_sides(block: int) -> tuple[int, int]:
    """The cheapest shape whose rows fill a vector: 8 x 16 of 128."""
    rows = 1 << (int(math.log2(block)) // 2)
    rows = min(rows, max(block // 16, 1))
    return rows, block // rows


def hadamard(side: int) -> Floats:
    """Orthogonal, in natural order."""
    matrix = np.ones((1, 1))
    while len(matrix) < side:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / math.sqrt(side)).astype(np.float32)


def first_transform(blocks: Blocks, channels: int, sides: tuple[int, int], seed: int) -> Transform:
    """Hadamard's, with factors 1/sqrt(rms) of the channels that are seen, and random signs."""
    weights = np.broadcast_to(blocks.weights.astype(np.float64)[:, None], blocks.values.shape)
    squares = blocks.values.astype(np.float64) ** 2 * weights
    places = blocks.channels.reshape(-1)
    total = np.bincount(places, squares.reshape(-1), channels)
    seen = np.bincount(places, weights.reshape(-1), channels)
    rms = np.sqrt(np.divide(total, seen, out=np.zeros(channels), where=seen > 0))
    top = float(rms.max(initial=0.0)) or 1.0
    factors = 1 / np.sqrt(np.maximum(rms / top, _RMS_FLOOR))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], channels)
    return Transform(hadamard(sides[0]), hadamard(sides[1]), (factors * signs).astype(np.float32))


def train(
    blocks: Blocks, channels: int, spec: str, sides: tuple[int, int], steps: int, seed: int
) -> Trained:
    """Adam over ``steps`` batches of ``blocks``, with a rate that falls to 0 as a cosine does.

    One block in eight is kept apart to see what came of it: where that is no better than the start,
    the start is what comes back."""
    jax = require_jax()
    import jax.numpy as jnp

    loss = jax.jit(jax.value_and_grad(_loss(level_grid(spec), sides)))
    update = jax.jit(_adam)
    random = np.random.default_rng([seed, 1])
    order = random.permutation(np.flatnonzero(np.abs(blocks.values).max(1, initial=0) > 0))
    if order.size < 2:
        raise InvalidArgumentError("there is nothing to learn from: all blocks but one are zero")
    apart, learned = order[: order.size // _APART + 1], order[order.size // _APART + 1 :]
    # So that losses are about 1, whatever the weights.
    unit = np.float32(blocks.weights.mean())

    def batch(which: npt.NDArray[np.int64]) -> tuple[Any, ...]:
        return blocks.values[which], blocks.channels[which], blocks.weights[which] / unit

    def judge(parameters: Any) -> float:
        sums = 0.0
        for begin in range(0, apart.size, _BATCH):
            which = apart[begin : begin + _BATCH]
            sums += float(loss(parameters, signs, *batch(which))[0]) * which.size
        return sums / apart.size * float(unit)

    start = first_transform(blocks, channels, sides, seed)
    signs = jnp.sign(start.diagonal)
    first = jnp.asarray(start.p1), jnp.asarray(start.p2), jnp.log(jnp.abs(start.diagonal))
    parameters: Any = first
    moments: Any = tuple((jnp.zeros_like(x), jnp.zeros_like(x)) for x in first)
    for step in range(steps):
        drawn = learned[random.integers(0, learned.size, _BATCH)]
        _, gradient = loss(parameters, signs, *batch(drawn))
        rate = 0.5 * (1 + math.cos(math.pi * step / steps))
        parameters, moments = update(parameters, gradient, moments, step + 1, rate)
    before, after = judge(first), judge(parameters)
    best = parameters if after < before else first
    p1, p2, log_factors = (np.asarray(part, np.float32) for part in best)
    factors = (np.exp(log_factors) * np.asarray(signs)).astype(np.float32)
    return Trained(Transform(p1, p2, factors), before, min(before, after))


def _loss(grid: Grid, sides: tuple[int, int]) -> Any:
    """The mean weighted squared error of a batch's blocks, by (p1, p2, logarithms of factors)."""
    import jax
    import jax.numpy as jnp

    levels = jnp.asarray(grid.levels)
    middles = (levels[1:] + levels[:-1]) / 2

    def scale_of(largest: Any) -> Any:
        """Of a block, with the gradient of one that is not rounded."""
        smooth = jnp.maximum(largest / grid.top, 1e-30)
        if grid.has_powers:
            rounded = 2.0 ** jnp.ceil(jnp.log2(smooth))
        else:
            bits = jax.lax.bitcast_convert_type(smooth, jnp.uint32)
            up = (bits + jnp.uint32(0xFFFF)) & jnp.uint32(0xFFFF0000)
            rounded = jax.lax.bitcast_convert_type(up, jnp.float32)
        return smooth * jax.lax.stop_gradient(rounded / smooth)

    def loss(parameters: Any, signs: Any, values: Any, channels: Any, weights: Any) -> Any:
        p1, p2, log_factors = parameters
        factors = (jnp.exp(log_factors) * signs)[channels]
        x = (values * factors).reshape(-1, *sides)
        y = jnp.einsum("ai,nab,bj->nij", p1, x, p2)
        scale = scale_of(jnp.abs(y).max((1, 2), keepdims=True))
        scaled = jax.lax.stop_gradient(y / scale)
        left = levels[jnp.searchsorted(middles, scaled, side="right")] - scaled
        back = jnp.einsum(
            "ia,nij,jb->nab", jnp.linalg.inv(p1), scale * left, jnp.linalg.inv(p2)
        ).reshape(values.shape)
        return (weights * jnp.square(back / factors).sum(1)).mean()

    return loss


def _adam(parameters: Any, gradient: Any, moments: Any, step: Any, rate: Any) -> tuple[Any, Any]:
    """Kingma and Ba's."""
    import jax.numpy as jnp

    updated, kept = [], []
    for x, g, (mean, square) in zip(parameters, gradient, moments, strict=True):
        mean = 0.9 * mean + 0.1 * g
        square = 0.999 * square + 0.001 * g * g
        change = (mean / (1 - 0.9**step)) / (jnp.sqrt(square / (1 - 0.999**step)) + 1e-12)
        updated.append(x - _RATE * rate * change)
        kept.append((mean, square))
    return tuple(updated), tuple(kept)
