"""Top-1 of a trained network that is quantized in several forms, each translated and simulated.

    python -m benchmarks.dialects [--scales FILE ...] [--models FILE ...]

The glyph network of e2e_workflow/glyphs (float, trained) is quantized by ONNX Runtime in the ways named in the table, calibrated on the
128 stored training glyphs, and scored on the 240 stored glyphs of other fonts. --scales: files for the float network that
other tools wrote (AIMET encodings). --models: the network as other tools quantized it. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from e2e_workflow.glyphs import sensitive
from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.verify import Options
from qdq_translator.lab.verification import verify

FORMS: dict[str, dict[str, Any]] = {
    "QDQ, symmetric arguments": {"symmetric": True},
    "QDQ, defaults (int8 with zero points)": {},
    "QDQ, uint8 with zero points": {"activation": "QUInt8"},
    "QOperator, symmetric": {"symmetric": True, "form": "QOperator"},
    "QOperator, uint8 with zero points": {"activation": "QUInt8", "form": "QOperator"},
}


def feeds(images: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    return ({"input": batch} for batch in np.split(images, len(images) // 16))


def quantized(
    target: Path, images: np.ndarray, symmetric: bool = False, activation: str = "QInt8", form: str = "QDQ"
) -> None:
    from onnxruntime import quantization

    rest = feeds(images)

    class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(rest, None)

    more: dict[str, Any] = {}
    if symmetric:
        more = {"per_channel": True, "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}
    kinds = {"activation_type": quantization.QuantType[activation], "weight_type": quantization.QuantType.QInt8}
    format_ = quantization.QuantFormat[form]
    quantization.quantize_static(
        str(sensitive.FLOAT_MODEL), str(target), Feeds(), quant_format=format_, **kinds, **more
    )


def table_of_runtime(folder: Path, images: np.ndarray) -> Path:
    from onnxruntime import quantization

    rest = feeds(images)

    class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(rest, None)

    calibrator = quantization.create_calibrator(str(sensitive.FLOAT_MODEL), [])
    calibrator.collect_data(Feeds())
    quantization.write_calibration_table(calibrator.compute_data(), str(folder))
    return folder / "calibration.json"


def row(name: str, model: Path, data: Path, folder: Path, **options: Any) -> str:
    """One translation: its options, Top-1 of the model as ONNX Runtime runs it and of the simulated engine, layers in INT8."""
    asked = TranslateOptions(platform="jetpack-6.2", shapes=["input:1x1x32x32"], preset="gpu", **options)
    translation = translate(model, asked)
    translation.save(folder)
    found = verify(
        Options(
            model=str(model),
            translation=str(folder),
            data=str(data),
            labels=str(data),
            metric="top1",
        )
    )
    stages = found["outputs"]["metric"]
    ran = found["simulation"]
    words = (
        f"{stages['explicit']:.2f} | {stages['simulated']:.2f} | {ran['layers_in_int8']} | {ran['layers_above_int8']}"
    )
    return f"| {name} | {asked.asymmetric} | {words} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--models", nargs="*", default=[], metavar="FILE")
    arguments = parser.parse_args()
    glyphs = sensitive.few()
    _, seen = sensitive.parts(glyphs, smoke=True)
    calibration = sensitive.calibration_images(glyphs, 0)
    calibration = calibration[: len(calibration) // 16 * 16]
    print(
        "| form | --asymmetric | Top-1 of the model | simulated | layers in INT8 | above |\n| --- | --- | ---: | ---: | ---: | ---: |"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, images = folder / "seen.npz", folder / "calibration.npz"
        np.savez(data, input=seen.images, labels=seen.labels)
        np.savez(images, input=calibration)
        for number, (form, how) in enumerate(FORMS.items()):
            model = folder / f"form{number}.onnx"
            quantized(model, calibration, **how)
            print(row(form, model, data, folder / f"a{number}"), flush=True)
            if not how.get("symmetric"):
                print(row(form, model, data, folder / f"b{number}", calibrate=str(images)), flush=True)
        for number, given in enumerate(arguments.models):
            name = Path(given).stem
            print(row(name, Path(given), data, folder / f"d{number}", per_channel_activations="max"), flush=True)
        sidecars = [("calibration table of ONNX Runtime", table_of_runtime(folder, calibration))]
        sidecars += [(Path(path).name, Path(path)) for path in arguments.scales]
        for number, (form, path) in enumerate(sidecars):
            print(row(form, sensitive.FLOAT_MODEL, data, folder / f"c{number}", scales=str(path)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
