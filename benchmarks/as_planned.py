"""The accuracy of the detector that ships, simulated in INT8 as far as scales allow, and as planned for Orin's DLA.

    python -m benchmarks.as_planned

The first row is what `verify` computed before it read the plan. Nothing here ran on TensorRT or on a DLA.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from e2e_workflow.common import shapes
from e2e_workflow.common.average_precision import MeanAveragePrecision
from qdq_translator import TranslateOptions, translate
from qdq_translator.core.hypotheses import BETWEEN, GPU_INT8, HYPOTHESES, SIGMOID
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, Simulated, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.ir.io import load_model

DETECTOR = Path(__file__).parents[1] / "e2e_workflow" / "detector"
PLANNED = SimulationOptions(sigmoid_fp16=True)
ENDS = {
    SIGMOID: SimulationOptions(),
    BETWEEN: dataclasses.replace(PLANNED, other=frozenset((BETWEEN,))),
    GPU_INT8: dataclasses.replace(PLANNED, other=frozenset((GPU_INT8,))),
}


def score(session: Session) -> float:
    """mAP 50-95 in percent, on the 16 images that ship."""
    samples = np.load(DETECTOR / "samples.npz")
    metric = MeanAveragePrecision()
    for image, labels in zip(samples["input"], samples["labels"]):
        metric.add(session.run({"input": image[None].astype(np.float32)}), labels[None])
    return metric.result()


def row(name: str, network: Simulated) -> str:
    map_ = score(Session(network.model, name))
    return f"| {name} | {len(network.placement.int8)} | {len(network.placement.higher)} | {map_:.2f} |"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "train.npz"
        np.savez(data, input=shapes.generate(64, 1)[0])
        table(data)


def table(data: Path) -> None:
    source = DETECTOR / "detector_qat.onnx"
    print("| `--preset dla`, detector | layers in INT8 | above | mAP 50-95 |\n| --- | ---: | ---: | ---: |")
    print(f"| explicit model | | | {score(Session(load_model(source)[0], 'explicit')):.2f} |")
    choices: dict[str, dict[str, Any]] = {
        "": {},
        ", --unify_scales max": {"unify_scales": "max"},
        ", --unify_scales data": {"unify_scales": "data", "calibrate": str(data)},
    }
    for flags, option in choices.items():
        network = ImplicitNetwork.of(translate(source, TranslateOptions(preset="dla", **option)))
        print(row(f"INT8 as far as scales allow{flags}", simulate(dataclasses.replace(network, plan=[]), PLANNED)))
        print(row(f"as planned{flags}", simulate(network, PLANNED)))
        for name, options in ENDS.items():
            if any(name in layer.hypotheses for layer in network.plan):
                print(row(f"as planned{flags}, {HYPOTHESES[name].stage}", simulate(network, options)))


if __name__ == "__main__":
    main()
