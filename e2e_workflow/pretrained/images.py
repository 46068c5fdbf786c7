"""Photographs that scikit-image ships, changed in place, size, angle, light and sharpness, for the networks that see."""

from __future__ import annotations

import functools
import io
from typing import Any, Callable, Sequence

import numpy as np
import onnx

from . import infer, packages
from .task import Outputs, Size, Task, split
from .text import f1_of_boxes

PHOTOS = (
    "chelsea.png",
    "coffee.png",
    "rocket.jpg",
    "motorcycle_left.png",
    "retina.jpg",
    "ihc.png",
    "hubble_deep_field.jpg",
)
PORTRAIT = "astronaut.png"
FACE = (170.0, 62.0, 280.0, 172.0)
"""x1, y1, x2, y2 of the face in the portrait of Eileen Collins (NASA, public domain), brow to chin."""
EYES = ((208.0, 103.0), (252.0, 106.0))


@functools.lru_cache(maxsize=None)
def photo(name: str) -> Any:
    """A picture as PIL has it, RGB."""
    from PIL import Image

    return Image.open(io.BytesIO(packages.read("scikit-image", f"skimage/data/{name}"))).convert("RGB")


def seen(
    rng: np.random.Generator, image: Any, box: Sequence[float], size: tuple[int, int], turn: float = 15.0
) -> tuple[np.ndarray, np.ndarray]:
    """The part `box` of a picture as pixels (height, width, 3) of 0 to 255, turned, mirrored, brighter or darker, blurred, noisy.

    Returns also the matrix (2, 3) that takes points of the picture to pixels. size: height, width.
    """
    from PIL import Image
    from scipy.ndimage import gaussian_filter

    height, width = size
    angle, mirror = np.deg2rad(rng.uniform(-turn, turn)), rng.random() < 0.5
    scale = np.array([(box[2] - box[0]) / width * (-1 if mirror else 1), (box[3] - box[1]) / height])
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) * scale
    centre = np.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2])
    back = np.column_stack([turned, centre - turned @ [width / 2, height / 2]])  # pixels -> points of the picture
    pixels = np.asarray(
        image.transform((width, height), Image.AFFINE, back.ravel().tolist(), Image.BILINEAR), np.float32
    )
    strength = rng.random() ** 2
    pixels = gaussian_filter(pixels, (strength, strength, 0)) * rng.uniform(0.6, 1.25) + rng.uniform(-20, 20)
    pixels = pixels * rng.uniform(0.9, 1.1, 3) + rng.normal(0, 8 * strength, pixels.shape)
    there = np.linalg.inv(np.vstack([back, [0, 0, 1]]))[:2]
    return np.clip(pixels, 0, 255).astype(np.float32), there


def around(
    rng: np.random.Generator, box: Sequence[float], least: float, most: float, shift: float, ratio: float = 1.0
) -> list[float]:
    """A box with the wanted ratio of width to height, `least` to `most` times as high as `box`, its centre moved."""
    high = (box[3] - box[1]) * rng.uniform(least, most)
    x = (box[0] + box[2]) / 2 + high * ratio * rng.uniform(-shift, shift)
    y = (box[1] + box[3]) / 2 + high * rng.uniform(-shift, shift)
    return [x - high * ratio / 2, y - high / 2, x + high * ratio / 2, y + high / 2]


def somewhere(rng: np.random.Generator) -> tuple[Any, list[float]]:
    """A picture without a face, and a square in it."""
    image = photo(str(rng.choice(PHOTOS)))
    side = rng.uniform(0.3, 1.0) * min(image.size)
    x, y = (rng.uniform(0, length - side) for length in image.size)
    return image, [x, y, x + side, y + side]


def moved(box: Sequence[float], there: np.ndarray) -> list[float]:
    """The upright box around a box of the picture, in pixels."""
    corners = np.array([[x, y, 1] for x in (box[0], box[2]) for y in (box[1], box[3])]) @ there.T
    return [*corners.min(0), *corners.max(0)]


def to_unit(pixels: np.ndarray) -> np.ndarray:
    """0 to 1, channels last, as MediaPipe's landmark networks take them."""
    return (pixels / 255).astype(np.float32)


def to_signed(pixels: np.ndarray) -> np.ndarray:
    """-1 to 1, channels last."""
    return (pixels / 127.5 - 1).astype(np.float32)


def to_grey(pixels: np.ndarray) -> np.ndarray:
    """-1 to 1, one channel, last."""
    return (pixels.mean(2, keepdims=True) / 127.5 - 1).astype(np.float32)


# ---------------- faces


def short_range_anchors() -> np.ndarray:
    """Centres of BlazeFace's 896 boxes, 0 to 1: two a cell of 16x16, six a cell of 8x8."""
    rows = []
    for cells, count in ((16, 2), (8, 6)):
        y, x = np.divmod(np.arange(cells * cells), cells)
        rows.append(np.repeat(np.stack([x + 0.5, y + 0.5], 1) / cells, count, 0))
    return np.concatenate(rows)


def full_range_anchors() -> np.ndarray:
    """Centres of the 2304 boxes of the network for the whole room: one a cell of 48x48."""
    y, x = np.divmod(np.arange(48 * 48), 48)
    return np.stack([x + 0.5, y + 0.5], 1) / 48


def faces(side: int, anchors: Callable[[], np.ndarray], least: float, most: float):
    """A task of finding the face, or that there is none: right if boxes and faces are the same at an overlap of one half."""

    def task(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
        samples, truth = [], []
        for _ in range(size.all):
            if rng.random() < 0.7:
                pixels, there = seen(rng, photo(PORTRAIT), around(rng, FACE, least, most, 0.2), (side, side))
                truth.append([moved(FACE, there)])
            else:
                pixels = seen(rng, *somewhere(rng), (side, side))[0]
                truth.append([])
            samples.append(to_signed(pixels))

        def score(outputs: Outputs, answer: list[list[float]]) -> float:
            boxes, scores = outputs[0][0], outputs[1].reshape(-1)
            best = int(scores.argmax())
            found = []
            if scores[best] > 0:  # a probability of one half
                x, y = boxes[best, :2] + anchors()[best] * side
                w, h = boxes[best, 2:4]
                found = [[x - w / 2, y - h / 2, x + w / 2, y + h / 2]]
            return f1_of_boxes(found, answer, 0.4)

        return Task(*split(size, samples, model), truth[size.calibration :], score)

    return task


def face_or_not(side: int):
    """A task of calling crops of faces and of other things, for MTCNN's networks."""

    def task(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
        samples, truth = [], []
        for _ in range(size.all):
            is_face = bool(rng.random() < 0.5)
            image, box = (photo(PORTRAIT), around(rng, FACE, 1.0, 1.5, 0.08)) if is_face else somewhere(rng)
            pixels = seen(rng, image, box, (side, side))[0]
            samples.append(((pixels - 127.5) / 128).transpose(2, 0, 1).astype(np.float32))
            truth.append(is_face)

        def score(outputs: Outputs, answer: bool) -> float:
            return 100.0 * (bool(outputs[-1][0, 1] > 0.5) == answer)

        return Task(*split(size, samples, model), truth[size.calibration :], score)

    return task


# ---------------- agreement with the float network


def agreement(
    part: Callable[[np.random.Generator], tuple[Any, list[float]]],
    size_of: tuple[int, int],
    to_network: Callable[[np.ndarray], np.ndarray],
    score: Callable[[Outputs, Outputs], float],
    turn: float = 15.0,
):
    """A task whose answers are the float network's own. part: a picture and a box in it."""

    def task(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
        samples = [to_network(seen(rng, *part(rng), size_of, turn)[0]) for _ in range(size.all)]
        return Task(*split(size, samples, model), None, score)

    return task


def portrait(least: float, most: float, shift: float = 0.1, ratio: float = 1.0):
    """Parts of the portrait around the face."""
    return lambda rng: (photo(PORTRAIT), around(rng, FACE, least, most, shift, ratio))


def person(ratio: float = 1.0):
    """The whole portrait, more or less."""
    return lambda rng: (photo(PORTRAIT), around(rng, (60, 20, 460, 500), 0.8, 1.15, 0.06, ratio))


def eye(rng: np.random.Generator) -> tuple[Any, list[float]]:
    """An eye and what is around it."""
    x, y = EYES[rng.integers(2)]
    return photo(PORTRAIT), around(rng, (x - 22, y - 22, x + 22, y + 22), 0.9, 1.2, 0.06)


def anything(rng: np.random.Generator) -> tuple[Any, list[float]]:
    """Any picture."""
    return (photo(PORTRAIT), around(rng, FACE, 1.0, 3.0, 0.5)) if rng.random() < 0.15 else somewhere(rng)


def same_class(outputs: Outputs, answer: Outputs) -> float:
    """Whether the best class of the last output is the float network's."""
    return 100.0 * (int(outputs[-1].argmax()) == int(answer[-1].argmax()))


def points(dimensions: int, pixels: float, index: int = 0):
    """A score: the share of points that are within so many pixels of the float network's (x and y of each)."""

    def score(outputs: Outputs, answer: Outputs) -> float:
        found, wanted = (values[index].reshape(-1, dimensions)[:, :2] for values in (outputs, answer))
        return 100.0 * float(np.mean(np.hypot(*(found - wanted).T) < pixels))

    return score


def mask_overlap(outputs: Outputs, answer: Outputs) -> float:
    """Intersection over union of the masks above one half."""
    found, wanted = outputs[0] > 0.5, answer[0] > 0.5
    union = float((found | wanted).sum())
    return 100.0 * float((found & wanted).sum()) / union if union else 100.0


# ---------------- pictures in, pictures out


def enlarge(factor: int, side: int = 48):
    """A task of super-resolution: the PSNR in dB against the photograph that was reduced."""

    def task(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
        from PIL import Image

        samples, truth = [], []
        for _ in range(size.all):
            image = photo(str(rng.choice((*PHOTOS[:4], PORTRAIT))))
            x, y = (int(rng.integers(0, length - side * factor)) for length in image.size)
            original = image.crop((x, y, x + side * factor, y + side * factor))
            samples.append(np.asarray(original.resize((side, side), Image.BICUBIC), np.float32) / 255)
            truth.append(np.asarray(original, np.float32) / 255)

        def score(outputs: Outputs, answer: np.ndarray) -> float:
            error = float(np.mean((np.clip(outputs[0][0], 0, 1) - answer) ** 2))
            return float(-10 * np.log10(max(error, 1e-10)))

        return Task(*split(size, samples, model), truth[size.calibration :], score)

    return task


def drawn_hands(rng: np.random.Generator, side: int) -> np.ndarray:
    """A hand with five fingers in skin colours over a part of a photograph, 0 to 255."""
    from PIL import Image, ImageDraw, ImageFilter

    ground = seen(rng, *somewhere(rng), (side, side))[0]
    skin = np.array([225, 170, 140]) * rng.uniform(0.5, 1.1)
    image = Image.new("L", (side, side), 0)
    draw, unit = ImageDraw.Draw(image), side * rng.uniform(0.10, 0.13)
    turn, mirror = np.deg2rad(rng.uniform(-25, 25)), rng.choice([-1, 1])
    matrix = np.array([[np.cos(turn) * mirror, -np.sin(turn)], [np.sin(turn) * mirror, np.cos(turn)]])

    def at(x: float, y: float) -> tuple[float, float]:
        return tuple(matrix @ [x * unit, y * unit] + side / 2 + [0, unit])

    def limb(points: list[tuple[float, float]], width: float) -> None:
        placed = [at(*point) for point in points]
        draw.line(placed, 255, int(width * unit))
        for x, y in placed:
            draw.ellipse([x - width * unit / 2, y - width * unit / 2, x + width * unit / 2, y + width * unit / 2], 255)

    draw.polygon([at(x, y) for x, y in ((-1.2, -0.9), (1.2, -0.9), (0.9, 1.5), (-0.9, 1.5))], 255)
    limb([(0, 1), (0, 4)], 1.6)
    for start, length, angle in ((-1.0, 2.0, -0.25), (-0.35, 2.5, -0.08), (0.35, 2.3, 0.06), (1.0, 1.8, 0.22)):
        bend = angle + rng.uniform(-0.1, 0.1)
        limb([(start, -0.8), (start + np.sin(bend) * length, -0.8 - np.cos(bend) * length)], 0.55)
    limb([(-1.0, 0.8), (-2.0, -0.2), (-2.3, -1.0)], 0.6)
    cover = np.asarray(image.filter(ImageFilter.GaussianBlur(1.5)), np.float32)[..., None] / 255
    shade = np.asarray(image.filter(ImageFilter.GaussianBlur(side / 20)), np.float32)[..., None] / 255
    return np.clip(ground * (1 - cover) + skin * (0.6 + 0.5 * shade) * cover, 0, 255)


def hands(rng: np.random.Generator, size: Size, model: onnx.ModelProto) -> Task:
    """Drawn hands that the float network takes for hands: the share of the 21 points within 2% of the picture of its own."""
    running, samples = infer.session(model), []
    name = running.get_inputs()[0].name
    while len(samples) < size.all:
        sample = to_unit(drawn_hands(rng, 224))
        if running.run(None, {name: sample[None]})[1].item() > 0.5:
            samples.append(sample)
    return Task(*split(size, samples, model), None, points(3, 0.02 * 224))
