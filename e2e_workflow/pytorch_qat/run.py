"""Quantization-aware training in PyTorch, exported with Q/DQ, and what the translator makes of it.

    python -m e2e_workflow.pytorch_qat.run [--smoke] [--only NAME]

Writes the ONNX models to e2e_workflow/work/pytorch_qat and, unless --smoke or --only, results.md beside this file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from e2e_workflow.common import results, translation
from e2e_workflow.common.lazy import later

tasks = later("e2e_workflow.common.tasks")

COMMAND = "python -m e2e_workflow.pytorch_qat.run"
PACKAGES = ["torch", "onnx", "onnxruntime", "numpy", "scikit-learn"]
HEADER = ["network", "metric", "float", "Q/DQ", *translation.HEADER]


def run(name: str, smoke: bool, folder: Path) -> list[str]:
    """Train, fine-tune, export and score one network: a row of the table. Raises AssertionError on bad scores."""
    task = tasks.make(name, smoke)
    network = tasks.float_network(task, smoke)
    float_score = task.score_of_model(task.export(network, folder / f"{name}_float.onnx", quantized=False))
    tasks.quantize_aware(task, network)
    model = task.export(network, folder / f"{name}_qat.onnx", quantized=True)
    qdq_score = task.score_of_model(model)
    choices = translation.with_data(task.calibration_images, folder / f"{name}_calibration.npz")
    found = translation.outcomes(model, task.score_of_model, choices=choices)
    cells = [cell for outcome in found for cell in outcome.cells()]
    row = [name, task.metric, f"{float_score:.2f}", f"{qdq_score:.2f}", *cells]
    print(" | ".join(row), flush=True)
    assert float_score >= task.wanted_score, f"{name}: float {float_score:.2f} is below {task.wanted_score}"
    assert qdq_score >= float_score - task.tolerated_loss, f"{name}: Q/DQ {qdq_score:.2f}, float {float_score:.2f}"
    translation.hold(name, qdq_score, found, task.tolerated_loss)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few epochs only; asserts on the scores")
    parser.add_argument("--only", metavar="NAME", help="one network")
    arguments = parser.parse_args()
    if arguments.only and arguments.only not in tasks.NAMES:
        parser.error(f"--only {arguments.only}: the networks are {', '.join(tasks.NAMES)}")
    folder = tasks.WORK / ("pytorch_qat_smoke" if arguments.smoke else "pytorch_qat")
    folder.mkdir(parents=True, exist_ok=True)
    names = [arguments.only] if arguments.only else tasks.NAMES
    text = results.table(HEADER, [run(name, arguments.smoke, folder) for name in names])
    print(text)
    if not (arguments.smoke or arguments.only):
        results.write(Path(__file__).with_name("results.md"), COMMAND, text, PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
