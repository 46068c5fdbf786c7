"""Rendered text with known characters, lines, direction and orientation, for the networks that read documents."""

from __future__ import annotations

import io
from typing import Callable, Sequence

import numpy as np
import onnx

from . import packages
from .task import Outputs, Size, Task, split

FONTS = (
    ("font-caladea", "font_caladea/files/Caladea-Regular.ttf"),
    ("font-caladea", "font_caladea/files/Caladea-BoldItalic.ttf"),
    ("font-hanken-grotesk", "font_hanken_grotesk/files/HankenGrotesk-Medium.otf"),
    ("font-source-sans-pro", "font_source_sans_pro/files/SourceSansPro-Light.ttf"),
    ("font-source-sans-pro", "font_source_sans_pro/files/SourceSansPro-Bold.ttf"),
    ("font-source-serif-pro", "font_source_serif_pro/files/SourceSerifPro-Regular.ttf"),
)
WORDS = [
    "amber",
    "bridge",
    "candle",
    "dragon",
    "engine",
    "forest",
    "garden",
    "harbor",
    "island",
    "jungle",
    "kettle",
    "ladder",
    "marble",
    "needle",
    "orange",
    "pencil",
    "quartz",
    "ribbon",
    "silver",
    "timber",
    "urgent",
    "violet",
    "window",
    "yellow",
    "zipper",
    "north",
    "south",
    "invoice",
    "total",
    "amount",
    "date",
    "street",
    "railway",
    "platform",
    "exit",
    "open",
    "closed",
    "warning",
    "voltage",
    "pressure",
    "serial",
    "number",
    "model",
    "weight",
    "origin",
    "net",
    "gross",
]


def _font(rng: np.random.Generator, size: int):
    from PIL import ImageFont

    package, member = FONTS[rng.integers(len(FONTS))]
    return ImageFont.truetype(io.BytesIO(packages.read(package, member)), size)


def phrase(rng: np.random.Generator, words: int) -> str:
    """Words and numbers, with capitals now and then."""
    made = []
    for _ in range(words):
        kind = rng.integers(4)
        word = str(rng.integers(10, 100000)) if kind == 0 else str(rng.choice(WORDS))
        made.append(word.upper() if kind == 1 else word.capitalize() if kind == 2 else word)
    return " ".join(made)


def _colours(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ink and paper, at least 60 apart in brightness, either of them the darker."""
    dark, light = rng.integers(0, 110, 3), rng.integers(170, 256, 3)
    return (dark, light) if rng.random() < 0.8 else (light, dark)


def _worn(rng: np.random.Generator, pixels: np.ndarray, hardest: float) -> np.ndarray:
    """Blur, uneven light and noise, of a strength that differs from sample to sample."""
    from scipy.ndimage import gaussian_filter

    strength = hardest * rng.random() ** 2
    values = gaussian_filter(pixels.astype(np.float32), (1.6 * strength, 1.6 * strength, 0))
    light = np.linspace(1 - 0.4 * strength, 1, pixels.shape[1], dtype=np.float32)[None, :, None]
    values = values * (light[:, ::-1] if rng.random() < 0.5 else light)
    return np.clip(values + rng.normal(0, 45 * strength, pixels.shape), 0, 255).astype(np.float32)


def line(rng: np.random.Generator, text: str, height: int = 48) -> np.ndarray:
    """A text line (height, width, 3) that fills its height, 0 to 255."""
    from PIL import Image, ImageDraw

    font = _font(rng, int(height * rng.uniform(0.6, 0.75)))
    left, top, right, bottom = font.getbbox(text)
    ink, paper = _colours(rng)
    image = Image.new("RGB", (right - left + 12, height), tuple(int(c) for c in paper))
    shift = (height - (bottom - top)) // 2 - top
    ImageDraw.Draw(image).text((6 - left, shift), text, tuple(int(c) for c in ink), font)
    return np.asarray(image.rotate(rng.uniform(-1.5, 1.5), Image.BILINEAR, fillcolor=tuple(int(c) for c in paper)))


def _to_network(pixels: np.ndarray, width: int) -> np.ndarray:
    """(3, height, width) from -1 to 1, blue first, padded with zeros on the right."""
    values = (pixels[:, :width, ::-1].transpose(2, 0, 1) / 255 - 0.5) / 0.5
    return np.pad(values, ((0, 0), (0, 0), (0, width - values.shape[2]))).astype(np.float32)


def direction(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
    """Lines of 48x192 pixels, upright (0) or upside down (1)."""
    samples, truth = [], []
    for _ in range(size.all):
        turned = int(rng.integers(2))
        pixels = line(rng, phrase(rng, 2))
        samples.append(_to_network(_worn(rng, pixels[::-1, ::-1] if turned else pixels, 1.0), 192))
        truth.append(turned)
    return Task(*split(size, samples, model), truth[size.calibration :], _is_class)


def _is_class(outputs: Outputs, answer: int) -> float:
    return 100.0 * (int(outputs[0].reshape(-1).argmax()) == answer)


def recognition(alphabet: Callable[[], str], width: int = 320):
    """A task of reading lines of 48 pixels: the share of characters that are right (1 less the edit distance over the length).

    alphabet: the characters of the classes from 1 on; class 0 is the blank of CTC, the last one a space.
    """

    def task(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
        letters = ["", *alphabet(), " "]
        samples, truth = [], []
        while len(samples) < size.all:
            text = phrase(rng, 2)
            pixels = line(rng, text)
            if pixels.shape[1] <= width:
                samples.append(_to_network(_worn(rng, pixels, 1.0), width))
                truth.append(text)

        def score(outputs: Outputs, answer: str) -> float:
            best = outputs[0][0].argmax(1)
            kept = best[np.flatnonzero(np.diff(best, prepend=-1))]
            read = "".join(letters[index] for index in kept if index < len(letters))
            return 100.0 * max(0.0, 1 - edit_distance(read, answer) / len(answer))

        return Task(*split(size, samples, model), truth[size.calibration :], score)

    return task


def edit_distance(first: str, second: str) -> int:
    """Insertions, deletions and replacements that make one string the other."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def page(rng: np.random.Generator, side: int, lines: int, rules: bool) -> tuple[np.ndarray, list[list[int]]]:
    """A square page with lines of text that do not touch, and their boxes (x1, y1, x2, y2)."""
    from PIL import Image, ImageDraw

    ink, paper = _colours(rng)
    image = Image.new("RGB", (side, side), tuple(int(c) for c in paper))
    draw, boxes, y = ImageDraw.Draw(image), [], int(rng.integers(6, 24))
    while len(boxes) < lines and y < side - 30:
        font, text = _font(rng, int(rng.integers(14, 26))), phrase(rng, int(rng.integers(1, 4)))
        left, top, right, bottom = font.getbbox(text)
        x = int(rng.integers(6, max(7, side - (right - left) - 6)))
        if x + right - left < side - 4 and y + bottom - top < side - 4:
            draw.text((x - left, y - top), text, tuple(int(c) for c in ink), font)
            boxes.append([x, y, x + right - left, y + bottom - top])
            if rules and rng.random() < 0.2:
                draw.line((4, y - 4, side - 4, y - 4), tuple(int(c) for c in ink))
        y += bottom - top + int(rng.integers(10, 36))
    return np.asarray(image), boxes


IMAGENET = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


def orientation(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
    """Pages of 320x320 pixels, turned clockwise by 0, 90, 180 or 270 degrees."""
    samples, truth = [], []
    for _ in range(size.all):
        turns = int(rng.integers(4))
        pixels = np.rot90(_worn(rng, page(rng, 320, 12, True)[0], 1.0), -turns)
        samples.append(((pixels / 255 - IMAGENET[0]) / IMAGENET[1]).transpose(2, 0, 1).astype(np.float32))
        truth.append(turns)
    return Task(*split(size, samples, model), truth[size.calibration :], _is_class)


def detection(side: int = 320, mean: tuple | None = None, bgr: bool = True):
    """A task of finding text lines: F1 of boxes at an overlap of one half."""
    average, deviation = mean or (np.full(3, 0.5, np.float32), np.full(3, 0.5, np.float32))

    def task(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
        samples, truth = [], []
        for _ in range(size.all):
            pixels, boxes = page(rng, side, 7, False)
            values = (_worn(rng, pixels, 1.0)[:, :, :: -1 if bgr else 1] / 255 - average) / deviation
            samples.append(values.transpose(2, 0, 1).astype(np.float32))
            truth.append(boxes)
        return Task(*split(size, samples, model), truth[size.calibration :], _boxes_right)

    return task


def _boxes_right(outputs: Outputs, answer: list[list[int]]) -> float:
    """DB's post-processing for upright boxes: the regions above 0.3, grown by 1.6 times area over perimeter."""
    from scipy.ndimage import find_objects, label

    found = []
    for rows, columns in find_objects(label(outputs[0].reshape(outputs[0].shape[-2:]) > 0.3)[0]):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if min(height, width) >= 3:
            grow = 1.6 * height * width / (2 * (height + width))
            found.append([columns.start - grow, rows.start - grow, columns.stop + grow, rows.stop + grow])
    return f1_of_boxes(found, answer)


def f1_of_boxes(found: Sequence[Sequence[float]], answer: Sequence[Sequence[float]], least: float = 0.5) -> float:
    """Percent; each right box is found once by an overlap (intersection over union) of at least `least`."""
    left, hits = list(answer), 0
    for box in found:
        overlaps = [overlap(box, other) for other in left]
        if overlaps and max(overlaps) >= least:
            left.pop(int(np.argmax(overlaps)))
            hits += 1
    return 100.0 if not found and not answer else 200.0 * hits / (len(found) + len(answer))


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2)."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inside = max(width, 0) * max(height, 0)
    return inside / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside)
