"""The decode tail of a YOLOv8, YOLO11 or YOLOv5u in NumPy: what the loadable gives becomes boxes and scores, without ONNX Runtime.

    python3 decode.py outputs.npz --height 640 -o decoded.npz

This file needs nothing but NumPy, on a board either. outputs.npz: the loadable's outputs as real numbers, in the order of
NAME_split.json, which are what the part behind it reads.
decoded.npz holds 'output0', [images, 4 + classes, N], as the whole export gives it (`coco.boxes_of` takes it from there).
"""

from __future__ import annotations

import argparse
import sys
from typing import Sequence

import numpy as np


def decode(outputs: Sequence[np.ndarray], height: int) -> np.ndarray:
    """[images, 4 + classes, N], float32: centre and size in pixels, and scores in [0, 1]; N places, from the finest level on.

    outputs: of each level the distances [images, 4 * bins, h, w] and, somewhere behind them, the logits [images, classes, h, w].
    A distance from a place to a side is the mean of 0 ... bins - 1 weighted by the softmax of its bins, in units of the stride
    (Generalized Focal Loss, arXiv:2006.04388). height: of the network's input, pixels. Raises ValueError for other outputs.
    """
    sizes = sorted({values.shape[2:] for values in outputs}, reverse=True)
    levels = [[values for values in outputs if values.shape[2:] == size] for size in sizes]
    if not levels or any(len(level) != 2 or level[0].ndim != 4 or level[0].shape[1] % 4 for level in levels):
        raise ValueError(f"Outputs of {[v.shape for v in outputs]} are not the distances and logits of each level.")
    return np.concatenate([_level(distances, logits, height) for distances, logits in levels], 2)


def _level(distances: np.ndarray, logits: np.ndarray, height: int) -> np.ndarray:
    images, channels, rows, columns = distances.shape
    stride = height / rows
    bins = distances.astype(np.float32).reshape(images, 4, channels // 4, rows * columns)
    weights = np.exp(bins - bins.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    sides = np.einsum("nsbp,b->nsp", weights, np.arange(channels // 4, dtype=np.float32))
    y, x = np.divmod(np.arange(rows * columns), columns)
    place = np.stack([x, y]).astype(np.float32) + np.float32(0.5)
    first, last = place - sides[:, :2], place + sides[:, 2:]
    boxes = np.concatenate([(first + last) / 2, last - first], 1) * np.float32(stride)
    with np.errstate(over="ignore"):
        scores = 1 / (1 + np.exp(-logits.astype(np.float32).reshape(images, -1, rows * columns)))
    return np.concatenate([boxes, scores], 1)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A YOLO's decode tail in NumPy.")
    parser.add_argument("outputs", help=".npz of the loadable's outputs, in the order of NAME_split.json")
    parser.add_argument("--height", type=int, required=True, help="of the network's input, in pixels")
    parser.add_argument("-o", "--output", default="decoded.npz")
    options = parser.parse_args(argv)
    with np.load(options.outputs) as given:
        np.savez(options.output, output0=decode([given[name] for name in given.files], options.height))
    return 0


if __name__ == "__main__":
    sys.exit(main())
