"""What `tune` finds on trained networks, held against the best of the points that people choose by hand.

    python -m e2e_workflow.calibration.run                   # trains the networks and writes the models
    python -m e2e_workflow.tuning.run [--models FOLDER] [--only NAME] [--evaluations N]

The test images are split: `tune` sees every second one, the scores of the table are those of the others. Calibration images
are a third set. Writes results.md beside this file unless --only.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from e2e_workflow.common import results
from e2e_workflow.common.average_precision import MeanAveragePrecision
from e2e_workflow.common.lazy import later
from e2e_workflow.common.ptq import PACKAGES
from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main as command
from qdq_translator.io import load_model
from qdq_translator.simulate.evaluation import HERE
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.simulate.inputs import input_specs, load_samples
from qdq_translator.simulate.run import CodedEnds
from qdq_translator.simulate.task_metrics import metric_of
from qdq_translator.simulate.user_metric import UserMetric
from qdq_translator.tune.meter import Meter
from qdq_translator.tune.points import Point

tasks = later("e2e_workflow.common.tasks")
NAMES = ("detector", "glyphs")
TARGET = ("--target", "orin-dla", "--platform", "jetpack-6.2")
MAX_DROP = 0.3
WORK = Path(__file__).resolve().parents[1] / "work"
HEADER = [
    "network", "ranges", "metric", "as given", "best by hand", "ms", "MACs in INT8", "tuned", "ms", "MACs in INT8", "FP16 layers",
    "measured",
]  # fmt: skip


def samples(name: str, folder: Path) -> tuple[Path, Path, Path]:
    """(seen by tune, held out, calibration)."""
    task = tasks.make(name, smoke=False)
    paths = [folder / f"{name}_{part}.npz" for part in ("seen", "held", "calibration")]
    labels = labels_of(task)
    for start, path in enumerate(paths[:2]):
        np.savez(path, input=task.test_images[start::2], labels=labels[start::2])
    np.savez(paths[2], input=task.calibration_images)
    return paths[0], paths[1], paths[2]


def labels_of(task: Any) -> np.ndarray:
    if not isinstance(task, tasks.DetectorTask):
        return np.asarray(task.data.test_labels)
    objects = task.test_objects
    labels = np.full((len(objects), max(len(o.boxes) for o in objects), 5), -1, np.float32)
    for row, found in zip(labels, objects):
        row[: len(found.boxes), 0], row[: len(found.boxes), 1:] = found.labels, found.boxes
    return labels


def run(name: str, model: Path, folder: Path, evaluations: int) -> list[str]:
    """A row of the table. Raises AssertionError where the result is worse than the best point by hand."""
    seen, held, calibration = samples(name, folder)
    out = folder / model.stem
    spec = "top1" if name == "glyphs" else "e2e_workflow.common.average_precision:MeanAveragePrecision"
    image = "x".join(map(str, (1, *np.load(seen)["input"].shape[1:])))
    asked = ["tune", "-i", str(model), "--data", str(seen), "--calibrate", str(calibration), "--metric", spec, *TARGET]
    asked += ["--max_drop", str(MAX_DROP), "--shapes", f"input:{image}", "-o", str(out)]
    command([*asked, "--evaluations", str(evaluations)])
    found = json.loads((out / f"{model.stem}_tune.json").read_text())
    by_hand = min(
        (row for row in found["points"] if row["why"] == "start" and row["measured"]["complete"]),
        key=lambda row: (row["measured"]["drop"] > MAX_DROP, row["cost"]["gpu_layers"], row["cost"]["milliseconds"]),
    )
    best = found["best"]
    if by_hand["measured"]["drop"] <= MAX_DROP:
        order = [(row["cost"]["gpu_layers"], row["cost"]["milliseconds"]) for row in (best, by_hand)]
        assert order[0] <= order[1], f"{model.name}: tuned {order[0]}, by hand {order[1]}"
    base = TranslateOptions(target=TARGET[1], platform=TARGET[3], calibrate=str(calibration), shapes=[f"input:{image}"])
    metric = metric_of(spec) if name == "glyphs" else UserMetric("mAP 50-95 %", MeanAveragePrecision)
    given = score(model, None, base, metric, held)
    scores = [score(model, row, base, metric, held) for row in (by_hand, best)]
    row = [name, model.stem.partition("_")[2], "Top-1 %" if name == "glyphs" else metric.name, f"{given:.2f}"]
    for value, point in zip(scores, (by_hand, best)):
        cost = point["cost"]
        row += [f"{value:.2f}", f"{cost['milliseconds']:.3f}", f"{100 * cost['int8_macs']:.1f}%"]
    row += [str(best["cost"]["higher_layers"]), str(found["evaluations"])]
    print(" | ".join(row), flush=True)
    return row


def score(model: Path, row: Any, base: TranslateOptions, metric: UserMetric, held: Path) -> float:
    """Of one point, or of the model as given (None), on the images that `tune` has not seen."""
    if row is None:
        network = load_model(model)[0]
    else:
        point = Point.of(row["changes"], row["kept_fp16"])
        implicit = ImplicitNetwork.of(translate(model, replace(point.options(base))))
        network = simulate(implicit, SimulationOptions(fp16=True, sigmoid_fp16=True)).model
    meter = Meter(metric, load_samples(held, input_specs(network, {}), None), HERE)
    meter.set_reference(network, CodedEnds({}, {}))
    return meter.reference.score


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=WORK / "calibration", help="folder with NAME_RANGES.onnx")
    parser.add_argument("--only", choices=NAMES, help="one network")
    parser.add_argument("--evaluations", type=int, default=60)
    arguments = parser.parse_args()
    folder = WORK / "tuning"
    folder.mkdir(parents=True, exist_ok=True)
    names = (arguments.only,) if arguments.only else NAMES
    models = [(name, path) for name in names for path in sorted(arguments.models.glob(f"{name}_*.onnx"))]
    if not models:
        print("No models are there; 'python -m e2e_workflow.calibration.run' makes them.", file=sys.stderr)
        return 1
    text = results.table(HEADER, [run(name, path, folder, arguments.evaluations) for name, path in models])
    print(text)
    if not arguments.only:
        results.write(Path(__file__).with_name("results.md"), "python -m e2e_workflow.tuning.run", text, PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
