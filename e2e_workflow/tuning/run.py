"""What `tune` finds on trained networks, held against the best of the points that people choose by hand.

    python -m e2e_workflow.tuning.run [--models FOLDER] [--only NAME ...] [--passes N] [--write]

Three networks are stored, and need no PyTorch and no training. `sensitive` is the glyph network in ../glyphs/model, in float,
with the calibration images that hot pixels spoil (it needs the fonts); `detector` the one in ../detector, after
quantization-aware training; `denoiser` the float network in ../denoiser, for which FP16 sets of several makers are compared.
The others are the networks that e2e_workflow.calibration.run has trained, where it has run. `tune` sees validation images
(README.md says which), and the scores are those of others; calibration images are a third set. --write: to results.md
beside this file.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

from e2e_workflow.common import glyphs, results, shapes
from e2e_workflow.common.lazy import later
from e2e_workflow.denoiser import images as denoiser
from e2e_workflow.detector.make import padded
from e2e_workflow.glyphs import sensitive
from qdq_translator import TranslateOptions
from qdq_translator.cli import main as translator_command
from qdq_translator.core.formats.rows import read
from qdq_translator.core.formats.tune_rows import FP16, Measured, Tuned, Tuning
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.inputs import input_specs, load_samples
from qdq_translator.lab.simulate.run import CodedEnds
from qdq_translator.lab.simulate.user_metric import metric_of
from qdq_translator.lab.tune.bench import Remembering, cost_of
from qdq_translator.lab.tune.journal import Journal
from qdq_translator.lab.tune.meter import Meter
from qdq_translator.lab.tune.points import Point
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.report.tuning import CALIBRATED, table
from qdq_translator.translation.translator import Translation

tasks = later("e2e_workflow.common.tasks")
HERE_ABOVE = Path(__file__).resolve().parents[1]
STORED = {
    "sensitive": sensitive.FLOAT_MODEL,
    "detector": HERE_ABOVE / "detector" / "detector_qat.onnx",
    "denoiser": HERE_ABOVE / "denoiser" / "denoiser_float.onnx",
}
NAMES = (*STORED, "glyphs")
TOP1 = ("Top-1 %", "top1")
METRIC = {
    "detector": ("mAP 50-95 %", "e2e_workflow.common.average_precision:MeanAveragePrecision"),
    "denoiser": ("PSNR dB", "e2e_workflow.denoiser.images:psnr"),
}
METHOD = {"sensitive": "max"}
"""Calibration that the search starts from, where it is not the default: what loses there, by minimum and maximum."""
HEAT = 80
"""Of the hot pixels, the next of glyphs/sensitive.py's after 40, which that script chose: at 40 an Orin DLA, which computes the
Sigmoid of SiLU in FP16, loses 0.7 points of the images that `tune` sees."""
DETECTOR_IMAGES, DETECTOR_CALIBRATION = 400, 512
DENOISER_IMAGES, DENOISER_CALIBRATION = 400, 256
TARGET = ("--target", "orin-dla", "--platform", "jetpack-6.2")
SIMULATION = SimulationOptions(fp16=True, sigmoid_fp16=True)
MAX_DROP = 0.3
"""In the unit of the metric."""
DROPS = (0.1, 0.3, 0.6, 1.0)
"""Of the denoiser, in dB: what accuracy costs in time."""
WORK = HERE_ABOVE / "work"
NOTE = f"`--max_drop {MAX_DROP}`. Milliseconds are estimates, scores those of the simulated engine on images held out."
HEADER = [
    "network", "model", "images seen, held out, calibration", "metric", "as given", "best by hand", "ms", "MACs in INT8", "tuned",
    "ms", "MACs in INT8", "FP16 layers", "calibration", "measured",
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
    if name == "sensitive":
        data = glyphs.load(False)
        return Images(*sensitive.parts(data, False), sensitive.calibration_images(data, HEAT))
    if name == "detector":
        pictures, objects = shapes.generate(DETECTOR_IMAGES, seed=2)
        calibration = shapes.generate(DETECTOR_CALIBRATION, seed=1)[0]
        return Images(*_halves(pictures, padded(objects)), calibration)
    if name == "denoiser":
        seen, held = (
            sensitive.Part(*denoiser.pairs(DENOISER_IMAGES, seed)) for seed in (denoiser.VALIDATION, denoiser.TEST)
        )
        return Images(seen, held, denoiser.pairs(DENOISER_CALIBRATION, denoiser.TRAINING)[0])
    task = tasks.make(name, smoke=False)
    return Images(*_halves(task.test_images, np.asarray(task.data.test_labels)), task.calibration_images)


def _halves(images: np.ndarray, labels: np.ndarray) -> tuple[sensitive.Part, sensitive.Part]:
    return sensitive.Part(images[::2], labels[::2]), sensitive.Part(images[1::2], labels[1::2])


class Case:
    """A model, and the files of its images in `folder`."""

    def __init__(self, name: str, model: Path, images: Images, folder: Path, passes: int) -> None:
        self.name, self.model, self._folder, self._passes = name, model, folder, passes
        self.seen, self.held, self.calibration = images.save(folder, name)
        self.sizes = f"{len(images.seen.images)}, {len(images.held.images)}, {len(images.calibration)}"
        self.unit, self.metric = METRIC.get(name, TOP1)
        self.base = TranslateOptions(
            target=TARGET[1],
            platform=TARGET[3],
            calibrate=str(self.calibration),
            calibrate_method=METHOD.get(name, TranslateOptions.calibrate_method),
            shapes=[f"input:{'x'.join(map(str, (1, *images.calibration.shape[1:])))}"],
        )
        self._where = Evaluation(Remembering(HERE.engine, Journal(Path(":memory:"), {})))

    def tuned(self, *goal: str) -> Tuning:
        """The results of `tune` with --max_drop or --budget_ms."""
        out = self._folder / "_".join([self.name, self.model.stem, *(word.strip("-") for word in goal)])
        asked = [
            "tune",
            "-i",
            str(self.model),
            "--data",
            str(self.seen),
            "--metric",
            self.metric,
            *Point().words(self.base),
        ]
        asked += ["--held_out", str(self.held), "--passes", str(self._passes)]
        translator_command([*asked, *goal, "-o", str(out)])
        return read(Tuning, json.loads((out / f"{self.model.stem}_tune.json").read_text()))

    def translation(self, point: Point) -> Translation:
        return translate(self.model, point.options(self.base), where=self._where, try_more=False)

    def score(self, data: Path, point: Optional[Point]) -> float:
        """Of one point, or of the model as given (None)."""
        network = load_model(self.model)[0]
        if point is not None:
            network = simulate(ImplicitNetwork.of(self.translation(point)), SIMULATION).model
        meter = Meter(metric_of(self.metric), load_samples(data, input_specs(network, {}), None), HERE)
        meter.set_reference(network, CodedEnds({}, {}))
        return meter.reference.score


def point_of(row: Tuned) -> Point:
    return Point.of(row.changes, row.kept_fp16)


def with_error(measured: Optional[Measured]) -> str:
    """Score on the images held out, with the 99% interval of its drop."""
    if measured is None:
        return ""
    return f"{measured.score:.2f}" + ("" if measured.error is None else f" ±{measured.error:.2f}")


def run(case: Case) -> tuple[list[str], Tuning]:
    """A row of the table, and what `tune` found. Raises AssertionError where that is worse than the best point by hand."""
    found = case.tuned("--max_drop", str(MAX_DROP))
    by_hand = min(
        (row for row in found.points if row.why in ("start", FP16)),
        key=lambda row: (max(row.measured.drop, MAX_DROP), *row.cost.key),
    )
    best = found.best
    if by_hand.measured.drop <= MAX_DROP:
        assert best.cost.key <= by_hand.cost.key, f"{case.model.name}: tuned {best.cost}, by hand {by_hand.cost}"
    row = [case.name, case.model.stem, case.sizes, case.unit, f"{found.metric.held_out:.2f}"]
    row += [f"{case.score(case.held, point_of(by_hand)):.2f}", f"{by_hand.cost.milliseconds:.3f}"]
    row += [f"{100 * by_hand.cost.int8_macs:.1f}%", with_error(best.held_out), f"{best.cost.milliseconds:.3f}"]
    row += [f"{100 * best.cost.int8_macs:.1f}%", str(best.cost.higher_layers), changes_of(best), str(found.evaluations)]
    print(" | ".join(row), flush=True)
    return row, found


def changes_of(point: Tuned) -> str:
    """Calibration of a point, in words."""
    names = [name for name in CALIBRATED if name in point.changes]
    return ", ".join(name if point.changes[name] is True else f"{name} {point.changes[name]}" for name in names)


def fp16_sets(case: Case, found: Tuning) -> str:
    """FP16 sets of several makers for the point whose tensors `tune` tried first. Raises AssertionError where one that holds is
    cheaper than the one that `tune` found."""
    base = found.sensitivity[0]
    changes, roundings = base.changes, sorted(base.account.entries, key=lambda row: -row.share)
    plan = [layer for layer in case.translation(Point.of(changes)).plan if layer.precision != "none"]
    layers = [layer.name for layer in plan]
    convs = [layer.name for layer in plan if layer.op == "Conv"]
    reference = found.metric.reference
    loudest: list[str] = []
    for rounding in roundings:
        if reference - case.score(case.seen, Point.of(changes, loudest)) <= MAX_DROP:
            break
        loudest += rounding.layers
    rows, best = [], found.best.cost.key
    for who, point in (
        ("nothing", Point.of(changes)),
        ("the first and the last Conv", Point.of(changes, [convs[0], convs[-1]])),
        ("the last block and what follows it", Point.of(changes, layers[layers.index(convs[-4]) :])),
        ("the loudest tensors, until it holds", Point.of(changes, loudest)),
        ("tune", point_of(found.best)),
        ("everything", Point.of(changes, layers)),
    ):
        cost = cost_of(case.translation(point))
        seen, held = (case.score(data, point) for data in (case.seen, case.held))
        rows.append([who, str(cost.higher_layers), f"{cost.milliseconds:.3f}", f"{100 * cost.int8_macs:.1f}%"])
        rows[-1] += [f"{seen:.2f}", f"{held:.2f}", "yes" if reference - seen <= MAX_DROP else "no"]
        print(" | ".join(rows[-1]), flush=True)
        assert rows[-1][-1] == "no" or best <= cost.key, f"{who} is cheaper than what tune found"
    return results.table(["kept in FP16", "layers above INT8", "ms", "MACs in INT8", "seen", "held out", "holds"], rows)


def trade_off(case: Case, tuned: dict[float, Tuning]) -> str:
    """The best point of each drop allowed, and the best metric within the milliseconds of the one of MAX_DROP."""
    budget = tuned[MAX_DROP].best.cost.milliseconds
    goals = [(f"`--max_drop {drop}`", found) for drop, found in tuned.items()]
    goals.append((f"`--budget_ms {budget:.4g}`", case.tuned("--budget_ms", f"{budget:.4g}")))
    rows = []
    for goal, found in goals:
        best = found.best
        rows.append([goal, "yes" if found.goal.holds else "no", f"{best.cost.milliseconds:.3f}"])
        rows[-1] += [f"{100 * best.cost.int8_macs:.1f}%", f"{best.measured.score:.2f}", with_error(best.held_out)]
        rows[-1] += [changes_of(best), str(found.evaluations)]
        print(" | ".join(rows[-1]), flush=True)
    return results.table(["goal", "holds", "ms", "MACs in INT8", "seen", "held out", "calibration", "measured"], rows)


def front(found: Tuning) -> str:
    """The Pareto front, as `tune` prints it."""
    headings, rows = table(found)
    return results.table(["chosen", *headings[1:]], rows)


def denoised(case: Case, found: Tuning) -> str:
    """The three tables of the denoiser."""
    tuned = {drop: found if drop == MAX_DROP else case.tuned("--max_drop", str(drop)) for drop in DROPS}
    cured = "; ".join(cure.words for cure in found.cures)
    return "\n\n".join(
        [
            f"## The denoiser\n\nAs given {found.metric.reference:.2f} dB on the images that `tune` saw. FP16 sets, `--max_drop {MAX_DROP}`:",
            fp16_sets(case, found),
            f"What was measured on the way: {cured}.\n\nWhat a drop allowed buys, and the other way round:",
            trade_off(case, tuned),
            f"The table of `--max_drop {MAX_DROP}`:",
            front(found),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--models", type=Path, default=WORK / "calibration", help="folder with the trained networks, NAME_RANGES.onnx"
    )
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}"
    )
    parser.add_argument("--passes", type=int, default=40)
    parser.add_argument("--write", action="store_true", help="write results.md")
    arguments = parser.parse_args()
    folder = WORK / "tuning"
    folder.mkdir(parents=True, exist_ok=True)
    rows, more = [], []
    for name in arguments.only:
        paths = [*([STORED[name]] if name in STORED else []), *sorted(arguments.models.glob(f"{name}_*.onnx"))]
        if not paths:
            print(f"{name} is left out; 'python -m e2e_workflow.calibration.run' trains it.", file=sys.stderr)
            continue
        images = images_of(name)
        for path in paths:
            case = Case(name, path, images, folder, arguments.passes)
            row, found = run(case)
            rows.append(row)
            if name == "denoiser":
                more.append(denoised(case, found))
    if not rows:
        return 1
    text = "\n\n".join([results.table(HEADER, rows), NOTE, *more])
    print(text)
    if arguments.write:
        which = "" if arguments.only == NAMES else f"--only {' '.join(arguments.only)} "
        command = f"python -m e2e_workflow.tuning.run {which}--passes {arguments.passes} --write"
        results.write(Path(__file__).with_name("results.md"), command, text, sensitive.PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
