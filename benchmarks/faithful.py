"""The law of rule Q9: distance of the written network to the model's own saturation, in float.

    python -m benchmarks.faithful [--networks 200] [--folder DIR ...]

Reference: the model with its quantizers replaced by their saturation. Compared: the translation, with the saturation of those tensors
that its plan holds in INT8 with a scale of the model, on inputs three times beyond the ranges. Networks are generated (convolutions, activations,
a residual branch) and quantized by ONNX Runtime: with zero points, in uint8, or symmetrically with ranges cut in half, as trained ranges cut values; some layers
are kept in FP16. --folder: more Q/DQ models. Prints Markdown.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any, Optional

import numpy as np
import onnx

from qdq_translator import TranslateOptions
from qdq_translator.core.errors import UserError
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.simulate.compare import in_shapes
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, placement_of
from qdq_translator.lab.simulate.inputs import input_specs, random_samples
from qdq_translator.lab.simulate.run import ExplicitNetwork, Session
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.quantizers.saturation import saturate, saturate_at

ACTIVATIONS = ("Relu", "Clip", "HardSwish", "Sigmoid", "Tanh", "LeakyRelu")
KINDS = ("int8 with zero points", "uint8", "symmetric, cut in half", "clamped")
LEAST_DB = 60.0
NAMED = ("V1", "C1", "C2")
"""Rules whose message is a reason: chaos, and one INT8 tensor that saturates for all its readers."""
TRIPLE = np.float32(3)


def float_network(random: np.random.Generator) -> onnx.ModelProto:
    nodes, x, init = [], "x", {"low": np.float32(random.choice([0.0, -1.0])), "high": np.float32(random.uniform(1, 6))}
    for index, kind in enumerate(random.choice(ACTIVATIONS, 4)):
        init[f"w{index}"] = random.normal(0, 0.6, (6, 3 if index == 0 else 6, 3, 3)).astype(np.float32)
        more = ", low, high" if kind == "Clip" else ""
        nodes += [f"c{index} = Conv <pads = [1, 1, 1, 1]> ({x}, w{index})", f"a{index} = {kind} (c{index}{more})"]
        x = f"a{index}"
    nodes += ["s = Add (a3, a1)", "p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (s)", "y = Conv (p, wl)"]
    init["wl"] = random.normal(0, 0.3, (4, 6, 1, 1)).astype(np.float32)
    head = '<ir_version: 8, opset_import: ["" : 14]> g (float[1,3,12,12] x) => (float[1,4,6,6] y) {'
    made = onnx.parser.parse_model(head + "\n".join(nodes) + "}")
    made.graph.initializer.extend(onnx.numpy_helper.from_array(values, name) for name, values in init.items())
    return made


def quantized(seed: int, folder: Path) -> Path:
    """Quantized by ONNX Runtime, in the kind of the seed."""
    from onnxruntime import quantization

    random, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    onnx.save(float_network(random), folder / "float.onnx")
    batches = iter(random.normal(0, 1, (8, 1, 3, 12, 12)).astype(np.float32))

    class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(({"x": batch} for batch in batches), None)

    more: dict[str, Any] = {
        "activation_type": quantization.QuantType.QUInt8 if kind == "uint8" else quantization.QuantType.QInt8
    }
    if kind.startswith("symmetric"):
        more["extra_options"] = {"ActivationSymmetric": True, "WeightSymmetric": True}
    path = folder / f"{seed}.onnx"
    quantization.quantize_static(str(folder / "float.onnx"), str(path), Feeds(), **more)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if kind.startswith("symmetric") and tensor.name.endswith("_scale") and tensor.name[0] in "acsp":
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) / 2, tensor.name))
    onnx.save(model, path)
    return path


def without_lowest_codes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rule W1: TensorRT's weights have no -128."""
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) > 1:
            codes = np.maximum(onnx.numpy_helper.to_array(tensor), -127)
            tensor.CopyFrom(onnx.numpy_helper.from_array(codes, tensor.name))
    return model


def distance(path: Path, **options: Any) -> tuple[float, str]:
    """(dB, the reason that the translation names, '' for none). Raises UserError."""
    made = translate(str(path), TranslateOptions(**options))
    named = next(
        (d.message for d in made.diagnostics if d.rule in NAMED or (d.rule == "Q9" and "ranges" in d.data)), ""
    )
    network = ImplicitNetwork.of(made)
    stated = {name for name, scale in made.scales.items() if scale.explicit}
    held = placement_of(
        network, SimulationOptions(fuse=False)
    ).held  # what a fusion does between its parts is not known
    written, explicit = network.graph(), ExplicitNetwork.of(without_lowest_codes(onnx.load(path)))
    saturate_at(written, {name: scale for name, scale in held.items() if name in stated})
    saturated = Graph.from_picture(explicit.graph.picture())
    saturate(saturated, made.options.missing_zero_point)
    feed = random_samples(input_specs(network.model, {}), {}, 1, 0).feed(0)
    feed = {name: values * TRIPLE if values.dtype.kind == "f" else values for name, values in feed.items()}
    wanted = Session(saturated.to_model(), "saturated").run(feed)
    found = in_shapes(Session(written.to_model(), "written").run(feed), wanted)
    return min(decibels(wanted[name], found[name]) for name in wanted), named


def decibels(reference: np.ndarray, other: np.ndarray) -> float:
    a, b = reference.astype(np.float64), other.astype(np.float64)
    noise = float(((a - b) ** 2).sum())
    return 10 * float(np.log10(max((a**2).sum(), 1e-30) / noise)) if noise else 200.0


def main(argv: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--folder", nargs="*", default=[])
    asked = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    print("| networks | preset | equal (60 dB) | named | other | refused |\n| --- | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        rows = [
            (kind, [quantized(s, folder) for s in range(n, asked.networks, len(KINDS))]) for n, kind in enumerate(KINDS)
        ]
        rows += [(Path(name).name, sorted(Path(name).glob("*.onnx"))) for name in asked.folder]
        for what, paths in rows:
            for options in ({"preset": "gpu"}, {"preset": "dla"}):
                report(what, paths, options)


def report(what: str, paths: list[Path], options: dict[str, Any]) -> None:
    counts, others = {"equal": 0, "named": 0, "other": 0, "refused": 0}, []
    for number, path in enumerate(paths):
        kept = {"keep_fp16": ["Conv_?1*", "Conv_?3*"]} if number % 2 and path.stem.isdigit() else {}
        try:
            db, named = distance(path, **options, **kept)
        except (UserError, ValueError):
            counts["refused"] += 1
            continue
        counts["equal" if db >= LEAST_DB else "named" if named else "other"] += 1
        others += [f"{path.stem} {db:.1f} dB"] if db < LEAST_DB and not named else []
    print(f"| {what} | {options['preset']} | {' | '.join(map(str, counts.values()))} |")
    if others:
        print(f"<!-- {'; '.join(others)} -->")


if __name__ == "__main__":
    main()
