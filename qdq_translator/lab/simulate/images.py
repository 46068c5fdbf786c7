"""Images as inputs of a network: how they are resized, ordered and scaled, as asked, else by the model's metadata."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import re
from typing import Any, Iterator, Mapping, Optional, Sequence

import numpy as np

from qdq_translator.core.errors import UserError, needed
from qdq_translator.lab.simulate.places import Place, file_of, opened

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
PAD = 114
"""Gray of the bars of a letterbox, as ultralytics has it."""
_NAMES = {
    "mean": ("mean", "image_mean", "norm_mean", "input_mean"),
    "std": ("std", "image_std", "norm_std", "input_std"),
    "resize": ("preprocess", "resize", "resize_mode"),
    "colors": ("colors", "color", "color_order", "channel_order", "Image.BitmapPixelFormat"),
}
"""What the metadata of a model may call a property of its images; `Image.` are ONNX's own."""
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?")
_PIXELS = ("mean", "std")
_ROTATED = (5, 6, 7, 8)
"""EXIF orientations of an image whose sides are swapped."""


@dataclasses.dataclass(frozen=True)
class ImageOptions:
    """pixel -> (pixel / 255 - mean) / std, per channel; layout 'auto', 'nchw' or 'nhwc'. resize: letterbox (keep the
    ratio, gray bars), crop (keep the ratio, cut) or stretch. source: the reason."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str = "auto"
    resize: str = "stretch"
    colors: str = "rgb"
    source: str = ""

    def words(self, channels: int, width: int, height: int) -> str:
        """The whole preprocessing in one line."""
        scaled = "divided by 255" if self.std != (1 / 255,) else "0 to 255"
        for name, values, idle in (("mean", self.mean, (0.0,)), ("std", self.std, (1.0,))):
            if tuple(values) not in (idle, idle * 3, (1 / 255,)):
                scaled += f", {name} {' '.join(f'{value:.4g}' for value in values)}"
        why = self.source or "by default; --preprocess sets resize, mean, std, colors"
        colors = "grayscale" if channels == 1 else self.colors.upper()
        return f"images: {self.resize} to {width}x{height}, {colors}, {scaled} ({why})"


def image_options(options: Any, metadata: Mapping[str, str]) -> ImageOptions:
    """What `options` ask for (mean and std may be empty, the others 'auto'), else what the model's metadata state."""
    stated, theirs = _stated(metadata), is_ultralytics(metadata)
    asked = {"mean": options.image_mean, "std": options.image_std, "resize": options.resize, "colors": options.colors}
    asked = {name: value for name, value in asked.items() if value not in ([], (), "auto")}
    found = {**stated, **asked}
    value = max(options.image_mean, default=0.0)
    if value > 1:
        what = f"--image_mean {value:g} is out of range: it is of pixels from 0 to 1."
        raise UserError(what, f"Divide it by 255 ({value / 255:.4g}), and the deviation too.")
    rest = "as ultralytics" if theirs else "by the model's metadata" if stated else "by default"
    source = f"as asked, the rest {rest}" if asked else rest if stated else ""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return ImageOptions(**values, layout=options.layout, source=source)


def is_ultralytics(metadata: Mapping[str, str]) -> bool:
    """Whether ultralytics or YOLOv5 exported the model."""
    return "ultralytics" in metadata.get("author", "").lower() or {"stride", "names"} <= metadata.keys()


def class_names(metadata: Mapping[str, str]) -> list[str]:
    """The names of the classes in the metadata of an ultralytics export, [] without any."""
    try:
        found = ast.literal_eval(metadata.get("names", "[]"))
    except (ValueError, SyntaxError):
        return []
    return list(map(str, found.values() if isinstance(found, dict) else found))


def exported_size(metadata: Mapping[str, str]) -> tuple[int, ...]:
    """Height and width for which ultralytics exported the model; () for another model."""
    found = tuple(map(int, re.findall(r"\d+", metadata.get("imgsz", ""))))
    return found if is_ultralytics(metadata) and len(found) == 2 else ()


def _stated(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The properties that the metadata state; {} for none."""
    if is_ultralytics(metadata):
        return {"resize": "crop" if metadata.get("task") == "classify" else "letterbox"}
    given = {name: next((metadata[key] for key in keys if key in metadata), "") for name, keys in _NAMES.items()}
    found: dict[str, Any] = {}
    for name, words in (("resize", "letterbox|stretch|crop"), ("colors", "bgr|rgb")):
        there = re.search(words, given[name].lower())
        found.update({name: there[0]} if there else {})
    numbers = {name: list(map(float, _NUMBER.findall(given[name]))) for name in _PIXELS if _NUMBER.search(given[name])}
    whole = 255 if max(map(max, numbers.values()), default=0) > 4 else 1  # for pixels from 0 to 255
    if whole > 1 or "0_255" in metadata.get("Image.NominalPixelRange", ""):
        found["std"] = [1 / 255]
    return {**found, **{name: [value / whole for value in values] for name, values in numbers.items()}}


def pillow() -> Any:
    """The module PIL.Image. Raises UserError without Pillow."""
    what = "Reading images needs Pillow, which is not installed."
    return needed("PIL.Image", what, "pip install '.[verify]' in a checkout of qdq-translator")


def image_layout(name: object, shape: Sequence[Optional[int]], layout: str) -> tuple[str, int, int, int]:
    """Layout, channels, height and width of an input. Raises UserError for one without images."""
    if len(shape) != 4:
        raise UserError(f"Images cannot be fed to the input {name}.", "They need an input of 4 dimensions.")
    if layout == "auto":  # 1 or 3 channels determine the layout; NCHW, the layout of ONNX, if both or none fit
        layout = "nhwc" if shape[3] in (1, 3) and shape[1] not in (1, 3) else "nchw"
    channels = shape[1] if layout == "nchw" else shape[3]
    if channels not in (1, 3, 4):
        raise UserError(
            f"Input {name} has {channels if channels is not None else 'an open number of'} channels as {layout}.",
            "Images have 1, 3 or 4; choose the other --layout, or prepare an .npz.",
        )
    height, width = shape[2:4] if layout == "nchw" else shape[1:3]
    if height is None or width is None:
        raise UserError(f"Input {name} leaves the size of images open.", "Give it with --shapes NAME:1x3xHEIGHTxWIDTH.")
    return layout, channels, height, width


@dataclasses.dataclass(frozen=True)
class Placed:
    """Place of an image in the input: `size` (width, height) after resizing, at (left, top), perhaps negative."""

    size: tuple[int, int]
    left: int = 0
    top: int = 0

    @classmethod
    def of(cls, size: tuple[int, int], wanted: tuple[int, int], resize: str) -> Placed:
        """An image of `size` in an input of the size `wanted`."""
        if resize == "stretch":
            return cls(wanted)
        ratios = wanted[0] / size[0], wanted[1] / size[1]
        ratio = min(ratios) if resize == "letterbox" else max(ratios)
        new = max(1, round(size[0] * ratio)), max(1, round(size[1] * ratio))
        odd = 0.1 if resize == "letterbox" else 0.0  # as ultralytics rounds halves
        left, top = (round((want - side) / 2 - odd) for want, side in zip(wanted, new))
        return cls(new, left, top)

    def corners(self, boxes: np.ndarray) -> np.ndarray:
        """Corners (n, 4) in parts of the image -> pixels of the input."""
        return np.asarray(boxes) * [*self.size, *self.size] + [self.left, self.top, self.left, self.top]


def image_size(path: Place) -> tuple[int, int]:
    """Width and height as the image is shown."""
    with _reading(path) as image:
        width, height = image.size
        return (height, width) if image.getexif().get(0x0112) in _ROTATED else (width, height)


def open_image(path: Place, channels: int, height: int, width: int, options: ImageOptions) -> np.ndarray:
    """(height, width, channels) uint8, resized and in the order of colours that is asked for."""
    Image = pillow()
    with _reading(path) as image:
        mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
        shown = importlib.import_module("PIL.ImageOps").exif_transpose(image).convert(mode)
        placed = Placed.of(shown.size, (width, height), options.resize)
        if options.resize == "letterbox":  # as OpenCV, which ultralytics uses: bilinear between pixels, not over areas
            steps = shown.size[0] / placed.size[0], shown.size[1] / placed.size[1]
            matrix = (steps[0], 0, 0, 0, steps[1], 0)
            resized = shown.transform(placed.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
        else:
            resized = shown.resize(placed.size, Image.Resampling.BILINEAR)
        canvas = Image.new(mode, (width, height), PAD if channels == 1 else (PAD,) * channels)
        canvas.paste(resized, (placed.left, placed.top))
        pixels = np.asarray(canvas, np.uint8).reshape(height, width, channels)
    order = [2, 1, 0, 3][:channels] if options.colors == "bgr" and channels > 1 else list(range(channels))
    return pixels[:, :, order]


@contextlib.contextmanager
def _reading(path: Place) -> Iterator[Any]:
    Image = pillow()
    errors = (SyntaxError, Image.DecompressionBombError)
    with file_of(path, "an image", "Remove or replace it.", *errors), opened(path) as file, _recognized(file) as image:
        yield image


def _recognized(file: Any) -> Any:
    """Raises SyntaxError without Pillow's name of the open file for a format that it does not know."""
    Image = pillow()
    try:
        return Image.open(file)
    except Image.UnidentifiedImageError as error:
        raise SyntaxError("its format is not known") from error
