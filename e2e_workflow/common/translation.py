"""What the translator makes of a Q/DQ model: files, coverage, and the score of the simulated implicit engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate

OPTIONS = {
    "plain": TranslateOptions(),
    "inferred": TranslateOptions(infer_average_pool_scales=True, infer_concat_scales=True, infer_mul_scales=True),
    "inferred, unary": TranslateOptions(
        infer_average_pool_scales=True,
        infer_concat_scales=True,
        infer_mul_scales=True,
        add_unary_ew_scales_for_dla=True,
    ),
}


CALIBRATED = "calibrated"


def with_data(images: np.ndarray, data: Path) -> dict[str, TranslateOptions]:
    """OPTIONS, and CALIBRATED: no inference option, what then has no scale gets it from these inputs, which `data` (.npz)
    is written with."""
    np.savez_compressed(data, input=images)
    return {**OPTIONS, CALIBRATED: TranslateOptions(calibrate=str(data))}


def header(choices: Iterable[str]) -> list[str]:
    """Two columns a choice, as `Outcome.cells` fills them."""
    return [f"{what}, {name}" for name in choices for what in ("INT8", "simulated")]


HEADER = header([*OPTIONS, CALIBRATED])
ENGINE = SimulationOptions(fp16=True)
"""As `trtexec --int8 --fp16` on a GPU or Orin builds it: layers above INT8 compute through float16, ties go to even."""


@dataclass(frozen=True)
class Outcome:
    """Coverage counts the layers that compute on floats: those that may run in INT8, and all of them.

    score: of the simulated implicit engine, in percent.
    """

    int8_layers: int
    layers: int
    score: float

    def cells(self) -> list[str]:
        """Its two columns of the table."""
        return [f"{self.int8_layers}/{self.layers}", f"{self.score:.2f}"]


def outcomes(
    model: Path,
    score: Callable[[onnx.ModelProto], float],
    asymmetric: str = "error",
    choices: Mapping[str, TranslateOptions] = OPTIONS,
) -> list[Outcome]:
    """Translate with each of the choices into a folder of its own beside the model; the engine is simulated from its files.

    `score` of an ONNX model is what the workflow measures. Raises UserError where the translation fails.
    """
    found = []
    for name, options in choices.items():
        folder = model.parent / f"{model.stem}_{name.replace(', ', '_')}"
        translation = translate(model, options.changed(asymmetric=asymmetric))
        translation.save(folder)
        layers = [layer for layer in translation.plan if layer.precision != "none"]
        network = ImplicitNetwork.read(TranslationFiles.locate(folder))
        found.append(
            Outcome(
                sum(layer.precision == "int8" for layer in layers), len(layers), score(simulate(network, ENGINE).model)
            )
        )
    return found


def hold(name: str, qdq_score: float, found: list[Outcome], tolerated_loss: float) -> None:
    """Raises AssertionError where a simulated engine loses more than that many points against the Q/DQ model."""
    for options, outcome in zip([*OPTIONS, CALIBRATED], found):
        assert outcome.score >= qdq_score - tolerated_loss, (
            f"{name}, {options}: simulated engine {outcome.score:.2f}, Q/DQ {qdq_score:.2f}"
        )
