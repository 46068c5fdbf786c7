"""A synthetic detection task: squares, discs and triangles of any colour and size on a noisy background."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIZE = 96
CLASS_NAMES = ("square", "disc", "triangle")
SMALLEST, LARGEST = 10, 60
MOST_OBJECTS = 4
MOST_OVERLAP = 0.1
NOISE = 0.08
"""Standard deviation; an image lies between -1 and 1."""


@dataclass(frozen=True)
class Objects:
    """What is in one image: boxes (M, 4) as x1, y1, x2, y2 in pixels, float32; labels (M,), int64."""

    boxes: np.ndarray
    labels: np.ndarray


def generate(count: int, seed: int, noise: float = NOISE) -> tuple[np.ndarray, list[Objects]]:
    """Images (count, 3, 96, 96), float32 from -1 to 1, and their objects; the same for the same seed, whatever the noise."""
    random = np.random.default_rng(seed)
    images = np.empty((count, 3, SIZE, SIZE), np.float32)
    objects = []
    for index in range(count):
        images[index], found = _scene(random, noise)
        objects.append(found)
    return images, objects


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (A, 4) with boxes (B, 4): (A, B)."""
    top_left = np.maximum(a[:, None, :2], b[None, :, :2])
    bottom_right = np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.clip(bottom_right - top_left, 0, None).prod(2)
    areas_a = (a[:, 2:] - a[:, :2]).prod(1)
    areas_b = (b[:, 2:] - b[:, :2]).prod(1)
    return common / np.maximum(areas_a[:, None] + areas_b[None] - common, 1e-9)


def _scene(random: np.random.Generator, noise: float) -> tuple[np.ndarray, Objects]:
    background = random.uniform(-0.6, 0.6, (3, 1, 1))
    slope = random.uniform(-0.3, 0.3, (3, 2))
    y, x = np.mgrid[0:SIZE, 0:SIZE] + 0.5
    image = background + slope[:, 0, None, None] * (x / SIZE - 0.5) + slope[:, 1, None, None] * (y / SIZE - 0.5)
    boxes: list[np.ndarray] = []
    labels: list[int] = []
    for _ in range(random.integers(1, MOST_OBJECTS + 1)):
        size = np.exp(random.uniform(np.log(SMALLEST), np.log(LARGEST)))
        width, height = np.minimum(size * np.exp(random.uniform(-0.3, 0.3, 2)), SIZE - 4)
        left, top = random.uniform(1, SIZE - 1 - width), random.uniform(1, SIZE - 1 - height)
        box = np.array([left, top, left + width, top + height], np.float32)
        label = int(random.integers(len(CLASS_NAMES)))
        colour = random.uniform(-1, 1, 3)
        if abs(colour - background.ravel()).max() < 0.4:
            continue
        if boxes and iou(box[None], np.stack(boxes)).max() > MOST_OVERLAP:
            continue
        u, v = (x - left) / width, (y - top) / height
        image = np.where(_mask(label, u, v), colour[:, None, None], image)
        boxes.append(box)
        labels.append(label)
    image = np.clip(image + random.normal(0, noise, image.shape), -1, 1)
    found = np.stack(boxes) if boxes else np.empty((0, 4), np.float32)
    return image.astype(np.float32), Objects(found, np.array(labels, np.int64))


def _mask(label: int, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The shape within its box; u and v run from 0 to 1 across it."""
    inside = (u >= 0) & (u <= 1) & (v >= 0) & (v <= 1)
    if CLASS_NAMES[label] == "square":
        return inside
    if CLASS_NAMES[label] == "disc":
        return (u - 0.5) ** 2 + (v - 0.5) ** 2 <= 0.25
    return inside & (np.abs(u - 0.5) <= v / 2)
