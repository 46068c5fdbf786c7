"""What the inference flags give: layers in FP16 and the share of MACs in INT8, by NVIDIA's formulas and by the sound ones.

    python -m benchmarks.inference_flags ZOO [--write]

ZOO is a folder with Q/DQ models; the tables go into docs/tables/inference_flags.md. What the scales do to trained networks is
measured by `python -m e2e_workflow.inference_flags.run`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any, Optional, Sequence

from benchmarks.dla_rewrites import page
from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UserError
from qdq_translator.translation.translator import Translation

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "inference_flags.md"
OLD: dict[str, Any] = {
    "infer_average_pool_scales": True,
    "infer_concat_scales": True,
    "infer_mul_scales": True,
}
SETS: dict[str, dict[str, Any]] = {
    "none": {},
    "pool, concat, mul": OLD,
    "the same, unary": {**OLD, "add_unary_ew_scales_for_dla": True},
    "the same, bounds, add": {
        **OLD,
        "add_unary_ew_scales_for_dla": True,
        "infer_bounds": True,
        "infer_add_scales": True,
    },
}
"""Name -> options. The last one did not exist before 0.2.0."""
MODES = ("reference", "sound")


@dataclasses.dataclass(frozen=True)
class Coverage:
    """fp16, layers: of those that compute on floats, graph outputs' layers included. clipped: tensors whose scale is a lower
    bound. unary: tensors whose scale is no range. int8_macs, macs: 0 where a shape is unknown."""

    fp16: int
    layers: int
    int8_macs: int
    macs: int
    clipped: int
    unary: int

    @classmethod
    def of(cls, done: Translation) -> Coverage:
        layers = [layer for layer in done.plan if layer.precision != "none"]
        known = all(layer.macs is not None for layer in layers)
        macs = {
            precision: sum(layer.macs or 0 for layer in layers if layer.precision == precision) if known else 0
            for precision in ("int8", "fp16")
        }
        bounds = [d for d in done.diagnostics if d.rule in ("S5", "S6", "S7", "S8") and d.severity == "warning"]
        return cls(
            sum(layer.precision == "fp16" for layer in layers),
            len(layers),
            macs["int8"],
            sum(macs.values()),
            sum(len(d.data["tensors"]) for d in bounds),
            sum(scale.origin.rule == "S9" for _, scale in done.scales.items()),
        )

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    @property
    def share(self) -> str:
        return f"{100 * self.int8_macs / self.macs:.1f}%" if self.macs else "-"


def cover(path: Path, options: dict[str, Any]) -> Optional[Coverage]:
    """None where the model cannot be translated. Asymmetric activations are widened."""
    try:
        return Coverage.of(translate(path, TranslateOptions(asymmetric="widen", **options)))
    except UserError:
        return None


def measure(models: Sequence[Path]) -> dict[str, dict[tuple[str, str], Coverage]]:
    """Model -> (set of flags, mode) -> its coverage."""
    found: dict[str, dict[tuple[str, str], Coverage]] = {}
    for path in models:
        for name, options in SETS.items():
            for mode in MODES:
                coverage = cover(path, {**options, "inference": mode})
                if coverage is not None:
                    found.setdefault(path.stem, {})[name, mode] = coverage
    return found


def summary(found: dict[str, dict[tuple[str, str], Coverage]]) -> str:
    """One row a set of flags, over all models."""
    rows = (
        "| flags | formulas | layers in FP16 | MACs in INT8 | scales that can only clip | unary scales |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |\n"
    )
    for name in SETS:
        for mode in MODES:
            total = Coverage(0, 0, 0, 0, 0, 0)
            for model in found.values():
                total += model[name, mode]
            rows += f"| {name} | {mode} | {total.fp16:,} of {total.layers:,} | {total.share} | {total.clipped} | {total.unary} |\n"
    return rows


def table(found: dict[str, dict[tuple[str, str], Coverage]]) -> str:
    """One row a model: FP16 layers and MACs in INT8; `before -> after` where the formulas make a difference."""
    heads = " | ".join(f"{name}: FP16 | MACs" for name in SETS)
    rows = f"| model | layers | {heads} |\n| --- | ---: |{' ---: |' * (2 * len(SETS))}\n"
    for model, covered in found.items():
        cells = []
        for name in SETS:
            before, after = (covered[name, mode] for mode in MODES)
            cells += [_change(str(before.fp16), str(after.fp16)), _change(before.share, after.share)]
        rows += f"| {model} | {covered['none', 'sound'].layers} | {' | '.join(cells)} |\n"
    return rows


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} -> {after}"


def main() -> int:
    parser = argparse.ArgumentParser(description="What the inference flags give.")
    parser.add_argument("zoo", type=Path)
    parser.add_argument("--write", action="store_true", help="write the tables into docs/tables/inference_flags.md")
    arguments = parser.parse_args()
    found = measure([EXAMPLE_MODEL, *sorted(arguments.zoo.glob("*.onnx"))])
    print(summary(found), table(found), sep="\n", end="")
    if arguments.write:
        text = page(page(PAGE.read_text(encoding="utf-8"), "summary", summary(found)), "models", table(found))
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
