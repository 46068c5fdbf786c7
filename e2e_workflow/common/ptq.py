"""The way both post-training workflows go: float network -> ONNX -> each variant of a quantizer -> scores and coverage."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from . import results, translation
from .lazy import later
from .variant import Variant

tasks = later("e2e_workflow.common.tasks")

HEADER = ["network", "variant", "metric", "float", "Q/DQ", *translation.HEADER]
PACKAGES = ["torch", "onnx", "onnxruntime", "numpy", "scikit-learn"]
SMOKE_NETWORKS = ("resnet", "mobilenet_silu")


def run(name: str, variants: list[Variant], smoke: bool, folder: Path) -> list[list[str]]:
    """One network through all variants: rows of the table. Raises AssertionError on bad scores."""
    task = tasks.make(name, smoke)
    float_model = task.export(tasks.float_network(task, smoke), folder / f"{name}_float.onnx", quantized=False)
    float_score = task.score_of_model(float_model)
    assert float_score >= task.wanted_score, f"{name}: float {float_score:.2f} is below {task.wanted_score}"
    choices = translation.with_data(task.calibration_images, folder / f"{name}_calibration.npz")
    rows = []
    for variant in variants:
        model = folder / f"{name}_{variant.name}.onnx"
        variant.quantize(float_model, task.calibration_images, model)
        score = task.score_of_model(model)
        found = translation.outcomes(model, task.score_of_model, variant.asymmetric, choices)
        cells = [cell for outcome in found for cell in outcome.cells()]
        row = [name, variant.name, task.metric, f"{float_score:.2f}", f"{score:.2f}", *cells]
        print(" | ".join(row), flush=True)
        lost = float_score - score
        assert lost <= task.tolerated_loss, f"{name}, {variant.name}: Q/DQ {score:.2f}, float {float_score:.2f}"
        translation.hold(f"{name}, {variant.name}", score, found, task.tolerated_loss)
        rows.append(row)
    return rows


def main(workflow: str, description: str, variants: Callable[[], list[Variant]], packages: list[str]) -> int:
    """The command line of a workflow: e2e_workflow/<workflow>/results.md is written by a full run."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--smoke", action="store_true", help="two networks, a few epochs; asserts on the scores")
    parser.add_argument("--only", metavar="NAME", help="one network")
    arguments = parser.parse_args()
    if arguments.only and arguments.only not in tasks.NAMES:
        parser.error(f"--only {arguments.only}: the networks are {', '.join(tasks.NAMES)}")
    found = variants()
    folder = tasks.WORK / (f"{workflow}_smoke" if arguments.smoke else workflow)
    folder.mkdir(parents=True, exist_ok=True)
    names = (arguments.only,) if arguments.only else SMOKE_NETWORKS if arguments.smoke else tasks.NAMES
    text = results.table(HEADER, [row for n in names for row in run(n, found, arguments.smoke, folder)])
    print(text)
    if not (arguments.smoke or arguments.only):
        path = Path(__file__).resolve().parents[1] / workflow / "results.md"
        results.write(path, f"python -m e2e_workflow.{workflow}.run", text, [*PACKAGES, *packages])
    return 0
