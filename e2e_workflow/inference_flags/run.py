"""What inferred scales cost trained networks: NVIDIA's formulas against the sound ones, and a floor for SiLU's input.

    python -m e2e_workflow.inference_flags.run [--smoke] [--only NAME]

Reuses the float networks that the other workflows trained (e2e_workflow/work). Unless --smoke or --only, results.md beside
this file is written. Exit status 1 where a set of flags costs a network more than LIMIT points against its Q/DQ model.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inference_flags import MODES, SETS, Coverage
from e2e_workflow.common import glyphs, results, shapes
from e2e_workflow.common.lazy import later
from e2e_workflow.common.translation import ENGINE
from e2e_workflow.glyphs.run import PERCENTILE
from qdq_translator import TranslateOptions, translate
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.translation.scales.inference import self_gated

evaluate, tasks = later("e2e_workflow.common.evaluate"), later("e2e_workflow.common.tasks")
glyph_network, nn = later("e2e_workflow.common.glyph_network"), later("torch.nn")
COMMAND = "python -m e2e_workflow.inference_flags.run"
PACKAGES = ["torch", "onnx", "onnxruntime", "numpy", "scikit-learn", "pillow"]
BARE = "glyphs_bare_pools"
NETWORKS = (BARE, "glyphs", "detector", "mobilenet_silu", "resnet")
"""BARE: the same trained network, its gates' pools without quantizers, as exporters often leave them."""
RANGES = {"max": None, "histogram": PERCENTILE}
LIMIT = 0.3
DETECTOR_IMAGES = 1600
TEST_SHARE = 1
"""More test images than in the other workflows (there 400, and every third character), because with those float16 alone
moves a score by 0.3."""
FLOORS = (0.0, 1.2784645427610738, 2.5, 4.0)
"""Least amax that a SiLU's input gets; the first but one is where SiLU has its minimum."""
HEADER = ["network", "ranges", "metric", "Q/DQ", *(f"{name}, {mode}" for name in SETS for mode in MODES)]
FLOOR_HEADER = ["network", "ranges", "smallest SiLU output amax", *(f"floor {floor:.3g}" for floor in FLOORS)]


def make_task(name: str, smoke: bool) -> tasks.Task:
    if name in ("glyphs", BARE):
        glyphs.TEST_SHARE = TEST_SHARE
        return tasks.GlyphTask(smoke)
    task = tasks.make(name, smoke)
    if isinstance(task, tasks.DetectorTask) and not smoke:
        task.test_images, task.test_objects = shapes.generate(DETECTOR_IMAGES, seed=3)
    return task


def engine(model: Path, options: dict[str, Any], task: tasks.Task) -> tuple[Coverage, list[np.ndarray]]:
    """Coverage of a translation, and the outputs of the simulated engine, which is read from its files."""
    folder = model.parent / f"{model.stem}_translated"
    translation = translate(model, TranslateOptions(**options))
    translation.save(folder)
    network = ImplicitNetwork.read(TranslationFiles.locate(folder))
    return Coverage.of(translation), evaluate.outputs(simulate(network, ENGINE).model, task.test_images)


def flags(model: Path, task: tasks.Task, expected: list[np.ndarray], limit: float) -> tuple[list[str], list[str]]:
    """One cell a set of flags and mode: score, and layers in FP16; and a sentence for each sound one that loses too much."""
    wanted, cells, failed = task.score(expected), [], []
    for name, options in SETS.items():
        for mode in MODES:
            coverage, outputs = engine(model, {**options, "inference": mode}, task)
            score = task.score(outputs)
            cells.append(f"{score:.2f} ({coverage.fp16})")
            if mode == "sound" and score < wanted - limit:
                failed.append(f"{model.stem}, {name}: {score:.2f}, Q/DQ {wanted:.2f}")
    return cells, failed


def floors(model: Path, task: tasks.Task, expected: list[np.ndarray]) -> list[str]:
    """One cell a floor: score, and signal to noise of the outputs against the Q/DQ model's."""

    @dataclass(frozen=True)
    class Floored(self_gated.Gate):
        least: float = 0.0

        def inverse(self, y: float) -> float:
            return max(super().inverse(y), self.least)

    plain, cells = self_gated.SIGMOID, []
    signal = sum(float(np.square(output, dtype=np.float64).sum()) for output in expected)
    try:
        for floor in FLOORS:
            self_gated.SIGMOID = Floored(plain.value, least=floor)
            _, outputs = engine(model, SETS["pool, concat, mul"], task)
            noise = sum(float(np.square(a - b, dtype=np.float64).sum()) for a, b in zip(outputs, expected))
            cells.append(f"{task.score(outputs):.2f} ({10 * np.log10(signal / noise):.1f} dB)")
    finally:
        self_gated.SIGMOID = plain
    return cells


def smallest_silu(model: Path) -> float:
    """The smallest amax of a SiLU output whose input is inferred; infinite where there is none."""
    scales = translate(model, TranslateOptions(**SETS["pool, concat, mul"])).scales
    notes = ((scale, scale.origin) for _, scale in scales.items())
    return min((scales[o.source].amax for _, o in notes if o.note.startswith(self_gated.NOTE)), default=np.inf)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="the digits classifiers, a few epochs, no table")
    parser.add_argument("--only", choices=NETWORKS, help="one network")
    arguments = parser.parse_args()
    smoke = arguments.smoke
    folder = tasks.WORK / ("inference_flags_smoke" if smoke else "inference_flags")
    folder.mkdir(parents=True, exist_ok=True)
    names = (arguments.only,) if arguments.only else NETWORKS[3:] if smoke else NETWORKS
    rows: list[list[str]] = []
    floor_rows: list[list[str]] = []
    failed: list[str] = []
    for name in names:
        task = make_task(name, smoke)
        network = tasks.float_network(task, smoke)
        if name == BARE:
            for gate in [module for module in network.modules() if isinstance(module, glyph_network.Gate)]:
                gate.pool = nn.AvgPool2d(gate.pool.kernel_size)
        for ranges, percentile in RANGES.items():
            tasks.calibrate(task, network, percentile)
            model = task.export(network, folder / f"{name}_{ranges}.onnx", quantized=True)
            expected = evaluate.outputs(model, task.test_images)
            cells, lost = flags(model, task, expected, 5.0 if smoke else LIMIT)
            failed += lost
            rows.append([name, ranges, task.metric, f"{task.score(expected):.2f}", *cells])
            print(" | ".join(rows[-1]), flush=True)
            smallest = smallest_silu(model)
            if np.isfinite(smallest):
                floor_rows.append([name, ranges, f"{smallest:.2f}", *floors(model, task, expected)])
                print(" | ".join(floor_rows[-1]), flush=True)
    if not (smoke or arguments.only):
        text = (
            "Score of the simulated engine (layers in FP16). "
            f"Sound sets of flags that cost more than {LIMIT} points: {'; '.join(failed) or 'none'}.\n\n"
            f"{results.table(HEADER, rows)}\n\n"
            "Least amax that the input of a SiLU gets, with the flags 'pool, concat, mul': score (signal to noise of the outputs "
            f"against the Q/DQ model's). The first column is what `translate` does.\n\n{results.table(FLOOR_HEADER, floor_rows)}"
        )
        results.write(Path(__file__).with_name("results.md"), COMMAND, text, PACKAGES)
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
