"""How far an implicit INT8 network is from its float, and how far the Q/DQ network is that it came from.

    python -m benchmarks.decibels [--trained] [--only NAME] [--write]

SQNR in dB of the worst output on samples that nothing was calibrated on (64; 32 of digits, 16 of the denoiser), simulated, for the GPU and for Orin's DLA: the Q/DQ model as
given; its translation with the inference rules of `--preset gpu`; ranges of `--calibrate` by `mse`, and by `output` (of a Q/DQ model
with `--recalibrate` for all scales of its own, which move only if that gains; weights keep every quantized value); on the DLA also with
`--unify_scales requantize`; a float network also with `--equalize`. The reference of a Q/DQ model is the same network without the rounding of its activations. glyphs Q/DQ: by ONNX Runtime's quantization.
--trained: also MobileNet-, MnasNet- and RegNet-like networks, each in float and after quantization-aware training on scikit-learn's
digits (needs PyTorch; trained once, minutes, into e2e_workflow/work). `--write` puts the table into docs/accuracy.md. The Q/DQ models of a folder: `benchmarks.zoo_decibels`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
import onnx

from benchmarks.dla_rewrites import page
from benchmarks.symmetric import quantize_symmetric
from benchmarks.verdict import Case, cases
from e2e_workflow.common import shapes
from e2e_workflow.common.lazy import later
from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.inputs import Samples, input_specs, load_samples
from qdq_translator.lab.simulate.metrics import Comparison
from qdq_translator.lab.simulate.run import CodedEnds, ExplicitNetwork, Session
from qdq_translator.lab.simulate.verdict import float_twin
from qdq_translator.translation.ir.io import load_model

networks, tasks = later("e2e_workflow.common.networks"), later("e2e_workflow.common.tasks")
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
SEEN = 64
TARGETS: dict[str, dict[str, Any]] = {
    "GPU": {"target": "gpu", "keep_norm_fp16": True},
    "Orin DLA": {"target": "orin-dla", "platform": "jetpack-6.2", "keep_norm_fp16": True},
}
HEAD = (
    "| network | target | Q/DQ model | translated | `mse` | `output` | `output`, requantized | `output`, equalized |",
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
)


def distance(reference: onnx.ModelProto, other: onnx.ModelProto, samples: Samples, ends: Optional[CodedEnds]) -> float:
    """SQNR in dB of the worst output. ends: of `other`, if it is a Q/DQ model."""
    sessions = [Session(one, "compared", one_thread=True) for one in (reference, other)]
    rows: dict[str, Comparison] = {}
    for feed in samples:
        wanted = sessions[0].run(feed)
        found = sessions[1].run(feed) if ends is None else ends.real(sessions[1].run(ends.feed(feed)))
        for name, values in wanted.items():
            rows.setdefault(name, Comparison()).add(values, found[name].reshape(values.shape))
    return min(row.sqnr_db for row in rows.values())


def prepared(folder: Path, trained: bool) -> Iterator[Case]:
    """All with data to calibrate on."""
    found = {case.name: case for case in cases(folder)}
    with np.load(found["digits"].inputs) as held:
        np.savez(folder / "digits_train.npz", **{name: values[32:] for name, values in held.items()})
        np.savez(folder / "digits_test.npz", **{name: values[:32] for name, values in held.items()})
    for seed, part in ((1, "train"), (2, "test")):
        np.savez(folder / f"detector_{part}.npz", input=shapes.generate(64, seed)[0])
    glyphs = found["glyphs"]
    with np.load(glyphs.options["calibrate"]) as held:
        feeds = iter([{"input": image[None]} for image in held["input"]])
    quantize_symmetric(glyphs.model, folder / "glyphs_qdq.onnx", feeds)
    for name in ("digits", "detector"):
        train, test = (folder / f"{name}_{part}.npz" for part in ("train", "test"))
        yield dataclasses.replace(found[name], inputs=test, options={"calibrate": str(train)})
    yield found["denoiser"]
    yield dataclasses.replace(glyphs, name="glyphs Q/DQ", model=folder / "glyphs_qdq.onnx")
    yield dataclasses.replace(glyphs, name="glyphs float")
    for name in networks.RELU_NETWORKS if trained else ():
        yield from _pair(name, tasks.WORK / "decibels")


def _pair(name: str, folder: Path) -> Iterator[Case]:
    paths = {kind: folder / f"{name}_{kind}.onnx" for kind in ("QAT", "float")}
    data = {part: folder / f"digits_{part}.npz" for part in ("train", "test")}
    if not all(path.is_file() for path in (*paths.values(), *data.values())):
        folder.mkdir(parents=True, exist_ok=True)
        task = tasks.make(name, smoke=False)
        network = tasks.float_network(task, smoke=False)
        task.export(network, paths["float"], quantized=False)
        tasks.quantize_aware(task, network)
        task.export(network, paths["QAT"], quantized=True)
        print(name, *(f"{kind} {task.score_of_model(path):.2f}%" for kind, path in paths.items()))
        np.savez(data["train"], input=task.calibration_images[:64])
        np.savez(data["test"], input=task.test_images[:64])
    options = {"calibrate": str(data["train"]), "shapes": ["input:1x1x16x16"]}
    yield from (Case(f"{name} {kind}", path, data["test"], options) for kind, path in paths.items())


def line(case: Case, target: str) -> str:
    model = load_model(case.model)[0]
    has_scales = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    explicit = ExplicitNetwork.of(model)
    data = {name: case.options[name] for name in ("calibrate", "shapes") if name in case.options}
    moved = {**data, "calibrate_method": "output", **({"recalibrate": ["worst:100000"]} if has_scales else {})}
    wanted: list[Optional[dict[str, Any]]] = [
        {"preset": "gpu", "shapes": data.get("shapes", [])} if has_scales else None,
        data,
        moved,
        {**moved, "unify_scales": "requantize"} if target != "GPU" else None,
        None if has_scales else {**moved, "equalize": True},
    ]
    reference = float_twin(explicit).to_model() if has_scales else None
    cells = []
    for options in wanted:
        if options is None:
            cells.append("")
            continue
        network = ImplicitNetwork.of(translate(case.model, TranslateOptions(**{**options, **TARGETS[target]})))
        model = simulate(network, SimulationOptions.on(TARGETS[target]["target"])).model
        samples = load_samples(case.inputs, input_specs(network.model, {}), SEEN)
        reference = reference or network.model
        cells.append(f"{distance(reference, model, samples, None):.1f}")
    given = f"{distance(reference, explicit.model, samples, explicit.ends):.1f}" if has_scales else ""
    return "| " + " | ".join([case.name, target, given, *cells]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trained", action="store_true", help="the networks that need PyTorch, too")
    parser.add_argument("--only", default="", help="networks whose name begins so")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args()
    print("\n".join(HEAD))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for case in prepared(work, asked.trained):
            for target in TARGETS if case.name.startswith(asked.only) else ():
                try:
                    rows.append(line(case, target))
                    print(rows[-1], flush=True)
                except UserError as error:
                    print(f"{case.name} is not translated: {error.what}", file=sys.stderr)
    if asked.write:
        text = "\n".join([*HEAD, *rows]) + "\n"
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), "decibels", text), encoding="utf-8")


if __name__ == "__main__":
    main()
