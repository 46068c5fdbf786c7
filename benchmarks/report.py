"""What planning and reporting cost beside the translation itself, at 100 and 10,000 convolutions.

    python3 benchmarks/report.py [--convolutions 100 10000] [--json FILE]

Every model is a chain of residual blocks (Conv, Sigmoid, Mul, Conv, Add, and a Concat with a Conv every third block)
of which every second block lacks quantizers, so that root causes have work to do. Times are the best of three runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.translation.planning.root_causes import explain, find_root_causes
from qdq_translator.translation.report.data import format_report, make_report
from qdq_translator.translation.scales.inference import Context
from qdq_translator.translation.targets.dla.verdicts import judge
from qdq_translator.translation.targets.precision import make_plan
from qdq_translator.translation.targets.settings import scale_policy
from qdq_translator.translation.translator import Translation

CHANNELS = 8


class _Maker:
    """Writes the Q/DQ network node by node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers = [
            numpy_helper.from_array(np.float32(0.02), "scale"),
            numpy_helper.from_array(np.int8(0), "zero"),
        ]
        self.random = np.random.default_rng(0)
        self.convolutions = 0

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def quantized(self, tensor: str) -> str:
        codes = self.op("QuantizeLinear", tensor, "scale", "zero")
        return self.op("DequantizeLinear", codes, "scale", "zero")

    def conv(self, tensor: str, quantize: bool, inputs: int = CHANNELS) -> str:
        size = 3 if inputs == CHANNELS else 1
        weight = self.random.standard_normal((CHANNELS, inputs, size, size)).astype(np.float32)
        name = f"weight_{self.convolutions}"
        self.convolutions += 1
        self.initializers.append(numpy_helper.from_array(weight, name))
        step = np.abs(weight).reshape(CHANNELS, -1).max(axis=1) / 127
        self.initializers.append(numpy_helper.from_array(step, f"{name}_scale"))
        self.initializers.append(numpy_helper.from_array(np.zeros(CHANNELS, np.int8), f"{name}_zero"))
        codes = self.op("QuantizeLinear", name, f"{name}_scale", f"{name}_zero", axis=0)
        values = self.op("DequantizeLinear", codes, f"{name}_scale", f"{name}_zero", axis=0)
        pads = [size // 2] * 4
        return self.op("Conv", self.quantized(tensor) if quantize else tensor, values, pads=pads)


def make_model(convolutions: int) -> onnx.ModelProto:
    """A network of at least `convolutions` convolutions."""
    make = _Maker()
    tensor, block = "input", 0
    while make.convolutions < convolutions:
        quantize = block % 2 == 0
        first = make.conv(tensor, quantize)
        gated = make.op("Mul", first, make.op("Sigmoid", first))
        second = make.conv(gated, quantize)
        tensor = make.op("Add", make.quantized(tensor) if quantize else tensor, second)
        if block % 3 == 0:
            tensor = make.conv(make.op("Concat", tensor, first, axis=1), quantize, 2 * CHANNELS)
        block += 1
    make.nodes.append(helper.make_node("Identity", [tensor], ["output"], "last"))
    sizes = [1, CHANNELS, 16, 16]
    graph = helper.make_graph(
        make.nodes,
        "chain",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, sizes)],
        make.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _best(work: Callable[[], Any], runs: int = 3) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(convolutions: int, target: str) -> dict[str, Any]:
    """Seconds of each part of planning and reporting, and of translating and writing without them."""
    options = TranslateOptions(target=target, platform="jetpack-6.0")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.onnx"
        onnx.save(make_model(convolutions), str(path))
        made: list[Translation] = []

        def whole() -> None:
            made[:] = [translate(path, options)]
            made[0].save(folder)

        total = _best(whole)
    done = made[0]
    context = Context(done.graph, done.types, done.scales, scale_policy(done.options))
    plan = make_plan(done.graph, done.types, done.scales, frozenset(), {})
    parts = {
        "plan": _best(lambda: make_plan(done.graph, done.types, done.scales, frozenset(), {})),
        "root_causes": _best(lambda: explain(plan, find_root_causes(context, plan, str, None).causes)),
        "dla": _best(lambda: judge(context, plan, done.hardware)) if target != "gpu" else 0.0,
        "report": _best(lambda: format_report(make_report(done))),
    }
    added = sum(parts.values())
    return {
        "convolutions": convolutions,
        "target": target,
        "layers": len(plan),
        "causes": len(done.causes.causes),
        "seconds": {"translate_and_save": total, **parts},
        "added": added,
        "rest": total - added,
        "ratio": added / (total - added),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--convolutions", type=int, nargs="+", default=[100, 10000])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args()
    rows = [measure(number, target) for number in arguments.convolutions for target in ("gpu", "orin-dla")]
    print("convolutions  target    layers  causes  plan s  causes s  dla s  report s  added s  rest s  added/rest")
    for row in rows:
        s = row["seconds"]
        print(
            f"{row['convolutions']:>12}  {row['target']:<8}  {row['layers']:>6}  {row['causes']:>6}  {s['plan']:>6.3f}  "
            f"{s['root_causes']:>8.3f}  {s['dla']:>5.3f}  {s['report']:>8.3f}  {row['added']:>7.3f}  {row['rest']:>6.3f}  "
            f"{row['ratio']:>10.2f}"
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row["ratio"] <= 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
