"""scikit-learn's digits (1797 grey images of 8x8, 10 classes) as a small image classification task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

TEST_SHARE = 0.25
SPLIT_SEED = 7


@dataclass(frozen=True)
class Digits:
    """Images are float32 of shape (N, 1, 16, 16), about zero mean and unit variance; labels are int64 of shape (N,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load() -> Digits:
    """The fixed split: 1347 images to train and to calibrate, 450 to test, classes in equal shares."""
    pixels, labels = load_digits(return_X_y=True)
    small = pixels.reshape(-1, 1, 8, 8) / 16.0
    images = _upscale(small).astype(np.float32)
    images = (images - np.float32(0.3)) / np.float32(0.35)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels.astype(np.int64), test_size=TEST_SHARE, random_state=SPLIT_SEED, stratify=labels
    )
    return Digits(train_images, train_labels, test_images, test_labels)


def _upscale(images: np.ndarray) -> np.ndarray:
    """Twice the height and width, bilinear with half-pixel centres: weights 3/4 and 1/4 of the two nearest pixels."""
    for axis in (2, 3):
        size = images.shape[axis]
        before = np.take(images, np.maximum(np.arange(size) - 1, 0), axis)
        after = np.take(images, np.minimum(np.arange(size) + 1, size - 1), axis)
        pairs = np.stack([0.75 * images + 0.25 * before, 0.75 * images + 0.25 * after], axis + 1)
        shape = list(images.shape)
        shape[axis] = 2 * size
        images = pairs.reshape(shape)
    return images
