"""What `tune` finds on trained networks, held against the best of the points that people choose by hand.

    python -m e2e_workflow.tuning.run [--models FOLDER] [--only NAME] [--evaluations N]

`sensitive` is the glyph network that lies in ../glyphs/model, in float, with the calibration images that hot pixels spoil: it
needs the fonts, no PyTorch and no training. `tune` sees the validation families, the scores of the table are those of the test
families. The others are the networks that e2e_workflow.calibration.run has trained, where it has run; `tune` sees every second
test image, and the scores are those of the rest. Calibration images are a third set. Writes results.md beside this file
unless --only.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from e2e_workflow.common import glyphs, results
from e2e_workflow.common.average_precision import MeanAveragePrecision
from e2e_workflow.common.lazy import later
from e2e_workflow.glyphs import sensitive
from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main as translator_command
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
STORED = "sensitive"
NAMES = (STORED, "detector", "glyphs")
METHOD = {STORED: "max"}
"""Calibration that the search starts from, where it is not the default: what loses there, by minimum and maximum."""
HEAT = 80
"""Of the hot pixels: the least of glyphs/sensitive.py's at which INT8 loses two points on an Orin DLA, on the images that `tune`
sees. 40, which that script chose, loses 0.7: an Orin DLA computes the Sigmoid of SiLU in FP16."""
TARGET = ("--target", "orin-dla", "--platform", "jetpack-6.2")
MAX_DROP = 0.3
WORK = Path(__file__).resolve().parents[1] / "work"
HEADER = [
    "network", "model", "images seen, held out, calibration", "metric", "as given", "best by hand", "ms", "MACs in INT8", "tuned",
    "ms", "MACs in INT8", "FP16 layers", "measured",
]  # fmt: skip


@dataclass(frozen=True)
class Images:
    """What `tune` sees, what its result is scored on, and what it calibrates with."""

    seen: sensitive.Part
    held: sensitive.Part
    calibration: np.ndarray

    def save(self, folder: Path, name: str) -> tuple[Path, Path, Path]:
        paths = [folder / f"{name}_{part}.npz" for part in ("seen", "held", "calibration")]
        for part, path in zip((self.seen, self.held), paths):
            np.savez(path, input=part.images, labels=part.labels)
        np.savez(paths[2], input=self.calibration)
        return paths[0], paths[1], paths[2]


def images_of(name: str) -> Images:
    """Rendered or loaded anew."""
    if name == STORED:
        data = glyphs.load(False)
        return Images(*sensitive.parts(data, False), sensitive.calibration_images(data, HEAT))
    task = tasks.make(name, smoke=False)
    labels = labels_of(task)
    halves = (sensitive.Part(task.test_images[start::2], labels[start::2]) for start in range(2))
    return Images(*halves, task.calibration_images)


def labels_of(task: Any) -> np.ndarray:
    if not isinstance(task, tasks.DetectorTask):
        return np.asarray(task.data.test_labels)
    objects = task.test_objects
    labels = np.full((len(objects), max(len(o.boxes) for o in objects), 5), -1, np.float32)
    for row, found in zip(labels, objects):
        row[: len(found.boxes), 0], row[: len(found.boxes), 1:] = found.labels, found.boxes
    return labels


def run(name: str, model: Path, images: Images, folder: Path, evaluations: int) -> list[str]:
    """A row of the table. Raises AssertionError where the result is worse than the best point by hand."""
    seen, held, calibration = images.save(folder, name)
    out = folder / f"{name}_{model.stem}"
    is_top1 = name != "detector"
    spec = "top1" if is_top1 else "e2e_workflow.common.average_precision:MeanAveragePrecision"
    image = "x".join(map(str, (1, *images.calibration.shape[1:])))
    asked = ["tune", "-i", str(model), "--data", str(seen), "--calibrate", str(calibration), "--metric", spec, *TARGET]
    method = METHOD.get(name, TranslateOptions.calibrate_method)
    asked += ["--calibrate_method", method, "--max_drop", str(MAX_DROP), "--shapes", f"input:{image}", "-o", str(out)]
    translator_command([*asked, "--evaluations", str(evaluations)])
    found = json.loads((out / f"{model.stem}_tune.json").read_text())
    by_hand = min(
        (row for row in found["points"] if row["why"] == "start"),
        key=lambda row: (
            max(row["measured"]["drop"], MAX_DROP),
            row["cost"]["gpu_layers"],
            row["cost"]["milliseconds"],
        ),
    )
    best = found["best"]
    if by_hand["measured"]["drop"] <= MAX_DROP:
        order = [(row["cost"]["gpu_layers"], row["cost"]["milliseconds"]) for row in (best, by_hand)]
        assert order[0] <= order[1], f"{model.name}: tuned {order[0]}, by hand {order[1]}"
    base = TranslateOptions(
        target=TARGET[1],
        platform=TARGET[3],
        calibrate=str(calibration),
        calibrate_method=method,
        shapes=[f"input:{image}"],
    )
    metric = metric_of(spec) if is_top1 else UserMetric("mAP 50-95 %", MeanAveragePrecision)
    given = score(model, None, base, metric, held)
    scores = [score(model, row, base, metric, held) for row in (by_hand, best)]
    sizes = f"{len(images.seen.images)}, {len(images.held.images)}, {len(images.calibration)}"
    row = [name, model.stem, sizes, "Top-1 %" if is_top1 else metric.name, f"{given:.2f}"]
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
    parser.add_argument(
        "--models", type=Path, default=WORK / "calibration", help="folder with the trained networks, NAME_RANGES.onnx"
    )
    parser.add_argument("--only", choices=NAMES, help="one network")
    parser.add_argument("--evaluations", type=int, default=60)
    arguments = parser.parse_args()
    folder = WORK / "tuning"
    folder.mkdir(parents=True, exist_ok=True)
    names = (arguments.only,) if arguments.only else NAMES
    models = {name: sorted(arguments.models.glob(f"{name}_*.onnx")) for name in names}
    if STORED in names:
        models[STORED] = [sensitive.FLOAT_MODEL]
    rows = []
    for name, paths in models.items():
        if not paths:
            print(f"{name} is left out; 'python -m e2e_workflow.calibration.run' trains it.", file=sys.stderr)
            continue
        images = images_of(name)
        rows += [run(name, path, images, folder, arguments.evaluations) for path in paths]
    if not rows:
        return 1
    text = results.table(HEADER, rows)
    print(text)
    if not arguments.only:
        command = f"python -m e2e_workflow.tuning.run --evaluations {arguments.evaluations}"
        text = f"{text}\n\n`--max_drop {MAX_DROP}`. Milliseconds are estimates, scores those of the simulated engine on images held out."
        results.write(Path(__file__).with_name("results.md"), command, text, sensitive.PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
