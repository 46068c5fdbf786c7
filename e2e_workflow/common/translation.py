"""What the translator makes of a Q/DQ model: files and coverage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from qdq_translator import TranslateOptions, translate

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
HEADER = [f"INT8 layers, {name}" for name in OPTIONS]


@dataclass(frozen=True)
class Outcome:
    """Coverage counts the layers that compute on floats: those that may run in INT8, and all of them."""

    int8_layers: int
    layers: int

    def __str__(self) -> str:
        return f"{self.int8_layers}/{self.layers}"


def outcomes(model: Path, asymmetric: str = "error") -> list[Outcome]:
    """Translate with each of OPTIONS into a folder of its own beside the model. Raises UserError where that fails."""
    found = []
    for name, options in OPTIONS.items():
        translation = translate(model, replace(options, asymmetric=asymmetric))
        translation.save(model.parent / f"{model.stem}_{name.replace(', ', '_')}")
        layers = [layer for layer in translation.plan if layer.precision != "none"]
        found.append(Outcome(sum(layer.precision == "int8" for layer in layers), len(layers)))
    return found
