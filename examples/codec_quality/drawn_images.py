"""Pictures for a vision model, drawn by code: one shape with a texture on a cluttered ground."""

from __future__ import annotations

import numpy as np

SIZE = 32
SHAPES = ("disc", "square", "triangle", "ring", "cross")
TEXTURES = ("plain", "stripes", "checks")
CLASSES = len(SHAPES) * len(TEXTURES)


def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images float32 [count, SIZE, SIZE, 3] in about -1..1, and classes int32 [count]."""
    classes = rng.integers(0, CLASSES, count)
    images = np.stack([_draw_one(rng, int(label)) for label in classes])
    return images.astype(np.float32), classes.astype(np.int32)


def _draw_one(rng: np.random.Generator, label: int) -> np.ndarray:
    shape, texture = SHAPES[label % len(SHAPES)], TEXTURES[label // len(SHAPES)]
    rows, columns = np.mgrid[0:SIZE, 0:SIZE].astype(np.float64)
    ground = rng.uniform(-1, 1, 3) * 0.5
    slope = rng.uniform(-1, 1, (2, 3)) / SIZE
    image = ground + rows[..., None] * slope[0] + columns[..., None] * slope[1]
    # Clutter that means nothing.
    for _ in range(3):
        top, left = rng.integers(0, SIZE - 6, 2)
        image[top : top + 4, left : left + 4] += rng.uniform(-0.6, 0.6, 3)
    inside = _inside(shape, rng, rows, columns)[..., None]
    colour = rng.uniform(-1, 1, 3)
    picture = np.where(inside, colour * _texture(texture, rng, rows, columns)[..., None], image)
    return picture + 0.1 * rng.standard_normal(picture.shape)


def _inside(
    shape: str, rng: np.random.Generator, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    radius = rng.uniform(6, 12)
    y, x = rows - rng.uniform(12, 20), columns - rng.uniform(12, 20)
    turn = rng.uniform(0, 2 * np.pi)
    u, v = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    distance = np.hypot(x, y)
    inside: np.ndarray = {
        "disc": distance < radius,
        "square": np.maximum(abs(u), abs(v)) < 0.85 * radius,
        "triangle": (v > -0.5 * radius) & (v < radius - 1.8 * abs(u)),
        "ring": (distance < radius) & (distance > 0.55 * radius),
        "cross": (np.minimum(abs(u), abs(v)) < 0.3 * radius)
        & (np.maximum(abs(u), abs(v)) < radius),
    }[shape]
    return inside


def _texture(
    texture: str, rng: np.random.Generator, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    period, turn = rng.uniform(4, 7), rng.uniform(0, 2 * np.pi)
    u = columns * np.cos(turn) + rows * np.sin(turn)
    v = rows * np.cos(turn) - columns * np.sin(turn)
    wave = np.sign(np.sin(2 * np.pi * u / period))
    if texture == "checks":
        wave = wave * np.sign(np.sin(2 * np.pi * v / period))
    return np.ones_like(u) if texture == "plain" else wave
