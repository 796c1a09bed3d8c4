"""Trains two small models on four CPU devices and captures what their devices sum. Plain JAX.

    PYTHONPATH=examples/train_demo python captured_programs.py FOLDER [--text-steps 150] …

FOLDER/text: the gradients of a language model that is trained data-parallel on licence texts, from
the run itself. FOLDER/images: the activations of a convolution net, trained on drawn shapes and
then run with the input channels of its layers spread over the devices. FOLDER/before has the same
of calls before those, for formats that are learned. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import drawn_images
import jax
import numpy as np
import shape_net
from char_model import Adam, Params, Shape, init_params, losses
from jax.sharding import Mesh, PartitionSpec

import tersum.jax

LICENCE_DIRECTORY = Path("/usr/share/common-licenses")
DEVICES = 4
VOCABULARY = 2048
WIDTH = 128
BATCH = 32
SEED = 20261122
SPLIT, WHOLE = PartitionSpec("data"), PartitionSpec()


def load_words() -> np.ndarray:
    """All licence texts as numbers of words and marks, int32; 0 is a rare one."""
    files = [path for path in sorted(LICENCE_DIRECTORY.glob("*")) if not path.is_symlink()]
    if not files:
        raise FileNotFoundError(f"no licence text under {LICENCE_DIRECTORY}")
    text = "\n".join(path.read_text(errors="replace") for path in files)
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    common = [word for word, _ in Counter(words).most_common(VOCABULARY - 1)]
    numbers = {word: number for number, word in enumerate(common, 1)}
    return np.array([numbers.get(word, 0) for word in words], np.int32)


def mean_over(axis: str, devices: int, gradients: Params) -> Params:
    """Each leaf in a sum of its own, under its own name: the capture can tell them apart."""

    def mean(path: Any, leaf: jax.Array) -> jax.Array:
        with jax.named_scope("gradient" + jax.tree_util.keystr(path, simple=True, separator=".")):
            return tersum.jax.psum(leaf, axis, codec="exact") / devices

    averaged: Params = jax.tree_util.tree_map_with_path(mean, gradients)
    return averaged


def text_trainer(mesh: Mesh) -> Callable[[], float]:
    """One step of training per call; returns the loss of the first device's rows."""
    words, rng = load_words(), np.random.default_rng(SEED)
    shape, adam = Shape(VOCABULARY, width=WIDTH), Adam()
    params = init_params(shape, SEED)
    state: Any = adam.init(params)

    def step(params: Params, state: Any, batch: jax.Array) -> tuple[Params, Any, jax.Array]:
        def mean_loss(params: Params) -> jax.Array:
            return losses(params, batch, shape.heads).mean()

        # Varying over the devices, so that the gradients are each device's own.
        own = jax.tree.map(lambda leaf: jax.lax.pcast(leaf, "data", to="varying"), params)
        loss, gradients = jax.value_and_grad(mean_loss)(own)
        gradients = mean_over("data", mesh.size, gradients)
        return *adam.update(params, gradients, state), loss[None]

    specs = {"in_specs": (WHOLE, WHOLE, SPLIT), "out_specs": (WHOLE, WHOLE, SPLIT)}
    compiled = jax.jit(jax.shard_map(step, mesh=mesh, **specs))
    kept = {"params": params, "state": state}

    def advance() -> float:
        length = shape.context + 1
        starts = rng.integers(0, len(words) - length, BATCH)
        batch = words[starts[:, None] + np.arange(length)]
        kept["params"], kept["state"], loss = compiled(kept["params"], kept["state"], batch)
        return float(jax.block_until_ready(loss)[0])

    return advance


def train_shapes(steps: int) -> Params:
    """The convolution net after ``steps`` batches of 64, on one device."""
    rng, adam = np.random.default_rng(SEED), Adam(rate=3e-3)
    params: Params = shape_net.init_params(drawn_images.CLASSES, SEED)
    state: Any = adam.init(params)

    @jax.jit
    def step(
        params: Params, state: Any, images: jax.Array, classes: jax.Array
    ) -> tuple[Params, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(shape_net.loss)(params, images, classes)
        return *adam.update(params, gradients, state), loss

    for number in range(steps):
        params, state, loss = step(params, state, *drawn_images.draw(rng, 64))
        if number % 100 == 99:
            print(f"images: loss {float(loss):.3f} after {number + 1} steps", flush=True)
    images, classes = drawn_images.draw(rng, 256)
    right = np.asarray(shape_net.logits(params, images)).argmax(1) == classes
    print(f"images: {right.mean():.1%} of 256 new ones right")
    return params


def spread_net(mesh: Mesh) -> Callable[[Params, np.ndarray], jax.Array]:
    """The net's logits; the input channels of each layer but the first spread over the devices."""
    spread = [WHOLE] + [PartitionSpec(None, None, "model")] * (len(shape_net.LAYERS) - 1)
    layers = [{"kernel": kernel, "gain": WHOLE, "shift": WHOLE} for kernel in spread]
    sum_parts = partial(tersum.jax.psum, axis_name="model", codec="exact")
    return jax.jit(
        jax.shard_map(
            partial(shape_net.logits, sum_parts=sum_parts),
            mesh=mesh,
            in_specs=({"layers": layers, "head": WHOLE}, WHOLE),
            out_specs=WHOLE,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the captures go below it")
    parser.add_argument("--text-steps", type=int, default=150, help="before the capture")
    parser.add_argument("--image-steps", type=int, default=400, help="before the capture")
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--before", type=int, default=2, help="calls to learn formats from")
    args = parser.parse_args()

    jax.config.update("jax_num_cpu_devices", DEVICES)
    tersum.jax.install("exact", min_bytes=0, local=True, timeout_ms=600_000)
    advance = text_trainer(Mesh(np.array(jax.devices()), ("data",)))
    curve = [advance() for _ in range(args.text_steps)]
    for name, calls in (("before/text", args.before), ("text", args.calls)):
        curve += record(args.out / name, calls, advance)
    print(f"text: loss {curve[0]:.3f} at first, {curve[-1]:.3f} after {len(curve)} steps")

    params = train_shapes(args.image_steps)
    run = spread_net(Mesh(np.array(jax.devices()), ("model",)))
    rng = np.random.default_rng(SEED + 1)
    for name, calls in (("before/images", args.before), ("images", args.calls)):
        record(args.out / name, calls, lambda: run(params, drawn_images.draw(rng, 16)[0]))


def record(folder: Path, calls: int, advance: Callable[[], Any]) -> list[Any]:
    """What ``calls`` calls of ``advance`` return; what they sum is captured."""
    with tersum.jax.capture(folder, calls=calls) as recording:
        found = [jax.block_until_ready(advance()) for _ in range(calls)]
    print(recording.stop())
    return found


if __name__ == "__main__":
    main()
