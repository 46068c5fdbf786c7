"""What `translate --calibrate` is worth on trained networks: the score with no rule, with all rules, and with data.

    python -m e2e_workflow.calibration.run [--smoke] [--only NAME]

Writes the ONNX models to e2e_workflow/work/calibration and, unless --smoke or --only, results.md beside this file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from e2e_workflow.common import results, translation
from e2e_workflow.common.lazy import later
from e2e_workflow.common.ptq import PACKAGES
from qdq_translator import TranslateOptions

tasks = later("e2e_workflow.common.tasks")
COMMAND = "python -m e2e_workflow.calibration.run"
NAMES = ("mobilenet_hardswish", "detector", "glyphs")
SMOKE_NAMES = ("mobilenet_hardswish",)
METHODS = ("max", "percentile", "entropy", "mse")
RANGES = {"max": None, "99.99 percentile": 99.99, "99.9 percentile": 99.9}
"""How the ranges of the Q/DQ model are found -> percentile of the magnitudes (None: the largest)."""
RULES = TranslateOptions(
    infer_average_pool_scales=True,
    infer_concat_scales=True,
    infer_mul_scales=True,
    infer_add_scales=True,
    infer_bounds=True,
)
HEADER = ["network", "ranges", "metric", "float", "Q/DQ", "plain", "all rules", *METHODS, "INT8 layers"]


def run(name: str, smoke: bool, folder: Path) -> list[list[str]]:
    """One network: a row for each way to find the ranges of its quantizers, and one for the float model, where all come from
    `--calibrate`. Raises AssertionError where a calibrated engine loses much against its Q/DQ model."""
    task = tasks.make(name, smoke)
    data = folder / f"{name}_data.npz"
    np.savez(data, input=task.calibration_images)
    network = tasks.float_network(task, smoke)
    float_model = task.export(network, folder / f"{name}_float.onnx", quantized=False)
    float_score = task.score_of_model(float_model)
    calibrated = {m: TranslateOptions(calibrate=str(data), calibrate_method=m) for m in METHODS}
    rows = []
    for ranges, percentile in RANGES.items():
        tasks.calibrate(task, network, percentile)
        model = task.export(network, folder / f"{name}_{ranges.replace(' ', '_')}.onnx", quantized=True)
        qdq_score = task.score_of_model(model)
        choices = {"plain": TranslateOptions(), "all rules": RULES, **calibrated}
        found = translation.outcomes(model, task.score_of_model, choices=choices)
        rows.append(_row(task, ranges, float_score, f"{qdq_score:.2f}", found))
        assert found[-1].score >= qdq_score - task.tolerated_loss, f"{name}, {ranges}: {found[-1].score:.2f} with mse"
        assert [outcome.int8_layers for outcome in found[2:]] == [found[-1].int8_layers] * len(METHODS)
    found = translation.outcomes(float_model, task.score_of_model, choices=calibrated)
    rows.append(_row(task, "none: float model", float_score, "", found))
    return rows


def _row(
    task: tasks.Task, ranges: str, float_score: float, qdq_score: str, found: list[translation.Outcome]
) -> list[str]:
    scores = [f"{outcome.score:.2f}" for outcome in found]
    layers = " / ".join(dict.fromkeys(str(outcome.int8_layers) for outcome in found)) + f" of {found[0].layers}"
    missing = [""] * (len(METHODS) + 2 - len(scores))
    row = [task.name, ranges, task.metric, f"{float_score:.2f}", qdq_score, *missing, *scores, layers]
    print(" | ".join(row), flush=True)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one network, a few epochs; asserts on the scores")
    parser.add_argument("--only", choices=NAMES, help="one network")
    arguments = parser.parse_args()
    folder = tasks.WORK / ("calibration_smoke" if arguments.smoke else "calibration")
    folder.mkdir(parents=True, exist_ok=True)
    names = (arguments.only,) if arguments.only else SMOKE_NAMES if arguments.smoke else NAMES
    text = results.table(HEADER, [row for name in names for row in run(name, arguments.smoke, folder)])
    print(text)
    if not (arguments.smoke or arguments.only):
        results.write(Path(__file__).with_name("results.md"), COMMAND, text, PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
