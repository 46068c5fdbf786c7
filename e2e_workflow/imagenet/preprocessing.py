"""ImageNet pictures as each network of NVIDIA's Top-1 table expects them.

The steps are those of NVIDIA tensorflow-quantization's examples, written anew in NumPy: bilinear resize of the shorter
side with half-pixel centres and without antialiasing (what `tf.image.resize` does), a central crop, then the pixel
values of `tf.keras.applications`' `preprocess_input`:

    caffe   blue, green, red; minus 103.939, 116.779, 123.68
    tf      from -1 to 1
    raw     from 0 to 255; the network normalizes them itself

JPEG decoding is Pillow's; TensorFlow's fast decoder differs by a grey level here and there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qdq_translator import TranslateOptions

CAFFE_MEANS = np.array([103.939, 116.779, 123.68], np.float32)


@dataclass(frozen=True)
class Preprocessing:
    """side: of the shorter edge after the resize; crop: edge of the square that is left; pixels: see the module."""

    side: int
    crop: int
    pixels: str

    def load(self, path: Path) -> np.ndarray:
        """(crop, crop, 3) float32, rows from the top."""
        from PIL import Image

        with Image.open(path) as image:
            picture = np.asarray(image.convert("RGB"), np.float32)
        return self.apply(picture)

    def apply(self, picture: np.ndarray) -> np.ndarray:
        """`picture`: (height, width, 3) float32, red, green, blue, from 0 to 255."""
        ratio = np.float32(self.side) / np.float32(min(picture.shape[:2]))
        height, width = (int(np.float32(size) * ratio) for size in picture.shape[:2])
        top, left = (height - self.crop) // 2, (width - self.crop) // 2
        rows = resize(picture, height, 0)[top : top + self.crop]
        values = resize(rows, width, 1)[:, left : left + self.crop]
        if self.pixels == "caffe":
            return values[..., ::-1] - CAFFE_MEANS
        return values / np.float32(127.5) - np.float32(1) if self.pixels == "tf" else values


def resize(values: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Bilinear along one axis with half-pixel centres, edges repeated, no antialiasing; float32."""
    old = values.shape[axis]
    position = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(old / size) - np.float32(0.5)
    below = np.floor(position).astype(np.int64)
    shape = [1] * values.ndim
    shape[axis] = size
    weight = (position - below).astype(np.float32).reshape(shape)
    first = np.take(values, np.clip(below, 0, old - 1), axis)
    second = np.take(values, np.clip(below + 1, 0, old - 1), axis)
    return first + (second - first) * weight


@dataclass(frozen=True)
class Network:
    """published: NVIDIA's Top-1 on TensorRT 8.6-EA, RTX 3090: (with Q/DQ, translated), percent. options: of translate."""

    title: str
    preprocessing: Preprocessing
    published: tuple[float, float]
    options: TranslateOptions = field(default_factory=TranslateOptions)


NETWORKS = {
    "resnet_50v1": Network("ResNet-50v1", Preprocessing(256, 224, "caffe"), (75.18, 75.22)),
    "resnet_50v2": Network("ResNet-50v2", Preprocessing(342, 299, "tf"), (75.77, 73.87)),
    "mobilenet_v1": Network("MobileNet-v1", Preprocessing(256, 224, "tf"), (70.45, 70.41)),
    "mobilenet_v2": Network("MobileNet-v2", Preprocessing(256, 224, "tf"), (71.62, 71.73)),
    "efficientnet_b0": Network("EfficientNet-B0", Preprocessing(256, 224, "raw"), (75.83, 75.79)),
    "efficientnet_b3": Network("EfficientNet-B3", Preprocessing(342, 300, "raw"), (79.02, 77.96)),
    "inception_v3": Network(
        "Inception-v3", Preprocessing(342, 299, "tf"), (78.06, 78.20), TranslateOptions(infer_concat_scales=True)
    ),
}
"""By the name of the ONNX file."""
