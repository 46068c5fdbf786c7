"""Where post-training quantization visibly loses, and what the translator makes of it: ranges by minimum and maximum, from
images of which four in 256 hold hot pixels.

    python -m e2e_workflow.glyphs.sensitive [--smoke | --keep_few]

Needs the fonts and ONNX Runtime, no training and no PyTorch: the float network lies in model/ beside this file, as run.py
trained it. How hot the pixels are is chosen on validation families by a rule that stands here (`chosen`); the test families are
scored once. Writes sensitive.md. --smoke needs no fonts: one heat, one way to quantize, and the few glyphs beside the network,
which --keep_few wrote, for validation and test (what runs, not what it scores).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from e2e_workflow.common import glyphs, results, translation
from e2e_workflow.common.lazy import later
from qdq_translator import TranslateOptions

evaluate, quantizers = later("e2e_workflow.common.evaluate"), later("e2e_workflow.onnxruntime_ptq.quantizers")
onnxruntime = later("onnxruntime")
COMMAND = "python -m e2e_workflow.glyphs.sensitive"
PACKAGES = ["onnx", "onnxruntime", "numpy", "pillow"]
FLOAT_MODEL = Path(__file__).with_name("model") / "glyphs_float.onnx"
FEW_GLYPHS = FLOAT_MODEL.with_name("few_glyphs.npz")
FEW_TRAIN, FEW_TEST = 128, 240
CALIBRATION_IMAGES, SPOILT_IMAGES, HOT_PIXELS = 256, 4, 3
HEATS = (20, 40, 80, 160)
"""What a hot pixel holds; an image lies between -5 and 5."""
VISIBLE = 2.0
"""Points that ranges by minimum and maximum must lose on the validation families."""
VALIDATION = 3
"""Every third family of those that training never saw, from the second on, is for validation."""
VARIANT_NAMES = ("tensorrt", "tensorrt_percentile", "default")
METHODS = ("max", "percentile", "entropy", "mse")


@dataclass(frozen=True)
class Part:
    """Images of some font families, with their classes."""

    images: np.ndarray
    labels: np.ndarray

    def score(self, model: evaluate.Model) -> float:
        """Top-1 in percent."""
        return evaluate.top1_of(evaluate.outputs(model, self.images)[0], self.labels)


def keep_few() -> None:
    """Write FEW_GLYPHS: so many clean ones of the families that training saw, and of the others with their classes."""
    data, random = glyphs.load(False), np.random.default_rng(6)
    train, test = (clean.reshape(-1, glyphs.SIZE, glyphs.SIZE) for clean in (data.train, data.test))
    chosen = random.permutation(len(test))[:FEW_TEST]
    np.savez_compressed(
        FEW_GLYPHS,
        train=train[random.permutation(len(train))[:FEW_TRAIN]],
        test=test[chosen],
        labels=chosen % glyphs.CLASSES,
    )


def few() -> glyphs.Glyphs:
    """What `keep_few` wrote, as one family."""
    with np.load(FEW_GLYPHS) as kept:
        train, test, labels = kept["train"], kept["test"], kept["labels"]
    return glyphs.Glyphs("", train[None], test[None], glyphs.spoil(test, np.random.default_rng(5)), labels)


def parts(data: glyphs.Glyphs, smoke: bool) -> tuple[Part, Part]:
    """Validation and test images, of different families; --smoke has one part for both."""
    if smoke:
        return (Part(data.test_images, data.test_labels),) * 2
    each = glyphs.CLASSES // glyphs.TEST_SHARE
    family = np.arange(len(data.test_labels)) // each
    first, second = family % VALIDATION == 1, family % VALIDATION != 1
    return Part(data.test_images[first], data.test_labels[first]), Part(
        data.test_images[second], data.test_labels[second]
    )


def calibration_images(data: glyphs.Glyphs, heat: float) -> np.ndarray:
    """Of the families that training saw; some hold a few pixels of value `heat`."""
    random = np.random.default_rng(4)
    clean = data.train.reshape(-1, glyphs.SIZE, glyphs.SIZE)
    images = glyphs.spoil(clean[random.permutation(len(clean))[:CALIBRATION_IMAGES]], random)
    for index in range(0, len(images), CALIBRATION_IMAGES // SPOILT_IMAGES):
        rows, columns = random.integers(0, glyphs.SIZE, (2, HOT_PIXELS))
        images[index, 0, rows, columns] = heat
    return images


def chosen(losses: dict[float, float]) -> float:
    """The least heat at which the loss on the validation families is visible; the largest where none is."""
    return next((heat for heat, loss in losses.items() if loss >= VISIBLE), max(losses))


def run(folder: Path, smoke: bool) -> str:
    """Both tables."""
    data = few() if smoke else glyphs.load(False)
    validation, test = parts(data, smoke)
    wanted = {variant.name: variant.quantize for variant in quantizers.VARIANTS}

    def quantized(name: str, images: np.ndarray) -> Path:
        path = folder / f"{name}.onnx"
        wanted[name](FLOAT_MODEL, images, path)
        return path

    base = validation.score(FLOAT_MODEL)
    losses: dict[float, float] = {}
    rows = []
    for heat in HEATS[-1:] if smoke else HEATS:
        images = calibration_images(data, heat)
        score = validation.score(quantized("tensorrt", images))
        losses[heat] = base - score
        by_method = _methods(images, validation, folder, smoke)
        rows.append([f"hot pixels of {heat}", f"{base:.2f}", f"{score:.2f}", *by_method])
        print(" | ".join(rows[-1]), flush=True)
    heat = chosen(losses)
    methods = [f"--calibrate, {method}" for method in METHODS]
    tuned = results.table(["calibration images", "float", "Q/DQ by min/max", *methods], rows)
    return f"{tuned}\n\nChosen: {heat}. Test families:\n\n{_test_table(data, test, heat, quantized, folder, smoke)}"


def _methods(images: np.ndarray, part: Part, folder: Path, smoke: bool) -> list[str]:
    """Scores of the float model with ranges from these images by each of METHODS; --smoke has one."""
    saved = folder / "calibration.npz"
    np.savez(saved, input=images)
    float_model = Path(shutil.copy(FLOAT_MODEL, folder))  # translations are written beside it
    scores = []
    for method in METHODS:
        if smoke and method != METHODS[1]:
            scores.append("")
            continue
        options = TranslateOptions(calibrate=str(saved), calibrate_method=method)
        (found,) = translation.outcomes(float_model, part.score, choices={method: options})
        scores.append(f"{found.score:.2f}")
    return scores


def _test_table(
    data: glyphs.Glyphs,
    test: Part,
    heat: float,
    quantized: Callable[[str, np.ndarray], Path],
    folder: Path,
    smoke: bool,
) -> str:
    images = calibration_images(data, heat)
    saved = folder / "calibration.npz"
    np.savez(saved, input=images)
    float_score = test.score(FLOAT_MODEL)
    choices = {
        "plain": TranslateOptions(),
        "inferred": translation.OPTIONS["inferred"],
        "calibrated": TranslateOptions(calibrate=str(saved), calibrate_method="percentile"),
        "recalibrated": TranslateOptions(
            calibrate=str(saved), calibrate_method="percentile", recalibrate=["worst:1000"]
        ),
    }
    rows = []
    for name in VARIANT_NAMES[:1] if smoke else VARIANT_NAMES:
        model = quantized(name, images)
        asymmetric = next(variant.asymmetric for variant in quantizers.VARIANTS if variant.name == name)
        found = translation.outcomes(model, test.score, asymmetric, choices)
        rows.append(
            ["Q/DQ", name, f"{float_score:.2f}", f"{test.score(model):.2f}", *(f"{o.score:.2f}" for o in found)]
        )
        print(" | ".join(rows[-1]), flush=True)
    for method, score in zip(METHODS, _methods(images, test, folder, smoke)):
        rows.append(["float", f"--calibrate, {method}", f"{float_score:.2f}", "", "", "", score, ""])
        print(" | ".join(rows[-1]), flush=True)
    return results.table(["model", "ranges", "float", "Q/DQ", *choices], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--smoke", action="store_true", help="the few glyphs in model/, one heat; needs no fonts")
    mode.add_argument("--keep_few", action="store_true", help="write these few glyphs, from the fonts")
    arguments = parser.parse_args()
    if arguments.keep_few:
        keep_few()
        return 0
    smoke = arguments.smoke
    onnxruntime.set_default_logger_severity(3)
    with tempfile.TemporaryDirectory() as folder:
        text = run(Path(folder), smoke)
    print(text)
    if not smoke:
        results.write(Path(__file__).with_name("sensitive.md"), COMMAND, f"Top-1 %.\n\n{text}", PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
