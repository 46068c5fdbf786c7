"""Writes one small Q/DQ network for each open question, for `qdq-translator deploy` and `ingest`.

    python -m e2e_workflow.on_device.probes.make probes/
    qdq-translator deploy probes/sigmoid.onnx --board jetpack-6.2 -o probes/sigmoid     # and so on
    python -m e2e_workflow.on_device.probes.make --int64 probes/slice64                 # after its deploy
    sh collect.sh                                                                       # in each bundle, on the board
    qdq-translator report sigmoid_board.tar.gz -t probes/sigmoid                        # on the desk

`PROBES` names the question and what the board shows at each end: `outputs` are compared with the simulation of each end of a
hypothesis (`core/hypotheses.py`), and `time` with both ends of the estimate; `device` is read from the layers of the DLA and of the GPU. The translator writes the indices
of a Slice as INT32 (rule F10): `--int64` brings those of a bundle back to INT64, for the network that other tools write.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

CHANNELS, SIZE = 16, 16
"""Large enough that a DLA takes the layers, small enough to build at once."""


@dataclass(frozen=True)
class Probe:
    """body: nodes in ONNX's textual form, from `x` to `y`; @NAME@ stands for a Q/DQ pair in front of it with the scale of that name.
    hypothesis: the one that it settles, if that has another name."""

    question: str
    read_by: str
    scales: dict[str, float]
    body: str
    hypothesis: str = ""


CONV = "<kernel_shape=[3,3], pads=[1,1,1,1]>"
SLICE = (
    {"x": 0.03, "c": 0.2, "t": 0.2},
    f"c = Conv {CONV} (@x@, w0)  t = Slice(@c@, start, stop, axis)  y = Conv {CONV} (@t@, w1)",
)
GPU = (
    {"x": 0.03, "c": 0.1, "e": 0.1, "f": 0.1, "h": 0.05},
    f"c = Conv {CONV} (@x@, w0)  e = Softplus(@c@)  f = Softplus(@e@)  h = Conv {CONV} (@f@, w1)  y = Conv {CONV} (@h@, w2)",
)
PROBES = {
    "fusion": Probe(
        "Does the tensor between a Conv and the Add that it fuses with pass unrounded?",
        "outputs",
        {"x": 0.03, "c": 0.1, "d": 0.1, "s": 0.05},
        f"c = Conv {CONV} (@x@, w0)  d = Conv {CONV} (@x@, w1)  s = Add(@c@, @d@)  y = Conv {CONV} (@s@, w2)",
    ),
    "sigmoid": Probe(
        "Are the scales around a Sigmoid applied on the DLA?",
        "outputs",
        {"x": 0.03, "c": 0.1, "g": 0.02, "h": 0.05},
        f"c = Conv {CONV} (@x@, w0)  g = Sigmoid(@c@)  h = Conv {CONV} (@g@, w1)  y = Conv {CONV} (@h@, w2)",
    ),
    "between": Probe(
        "Do additions that could run in INT8 do so between two FP16 layers of the DLA?",
        "outputs",
        {"c": 0.1, "p": 0.2, "q": 0.4},
        f"c = Conv {CONV} (x, w0)  p = Add(@c@, @c@)  q = Add(@p@, @p@)  y = Conv {CONV} (@q@, w1)",
    ),
    "gpu": Probe(
        "Does a layer of the GPU beside the DLA compute in INT8, because all of its tensors have scales?",
        "outputs",
        *GPU,
    ),
    "transitions": Probe("What does a tensor between DLA and GPU take?", "time", *GPU),
    "average": Probe(
        "Does an average whose output has another scale than its input run in INT8 on the DLA?",
        "outputs",
        {"x": 0.03, "c": 0.2, "a": 0.0125},
        f"c = Conv {CONV} (@x@, w0)  a = AveragePool {CONV} (@c@)  y = Conv {CONV} (@a@, w1)",
        "ranges",
    ),
    "concat": Probe(
        "Does a Concat whose inputs have scales that differ run in INT8 on the DLA, with one of them for all?",
        "outputs",
        {"x": 0.03, "c": 0.2, "d": 0.0125, "j": 0.2},
        f"c = Conv {CONV} (@x@, w0)  d = Conv {CONV} (@x@, w1)  j = Concat <axis=1> (@c@, @d@)  y = Conv {CONV} (@j@, w4)",
        "ranges",
    ),
    "pow": Probe(
        "Does Pow with a constant exponent run on the DLA of TensorRT 10.3?",
        "device",
        {"x": 0.03, "r": 0.1, "q": 0.1},
        f"c = Conv {CONV} (@x@, w0)  r = Relu(c)  q = Pow(@r@, exponent)  y = Conv {CONV} (@q@, w1)",
    ),
    "slice": Probe("Does a Slice with INT32 indices run on the DLA?", "device", *SLICE),
    "slice64": Probe("Does a Slice with INT64 indices run on the DLA?", "device", *SLICE),
}
"""An exponent of 2.5 and a Slice along the height: 2 becomes a Mul, and one along the channels goes into the Conv before it."""


def network(name: str) -> onnx.ModelProto:
    """The Q/DQ network of a probe, opset 17, with weights from a fixed seed."""
    probe, rng = PROBES[name], np.random.default_rng(0)
    body, pairs = probe.body, ""
    for tensor in probe.scales:
        body = body.replace(f"@{tensor}@", f"{tensor}_dq")
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> {name} (float[1,{CHANNELS},{SIZE},{SIZE}] x) => (float[N,C,H,W] y) {{ {body} }}'
    )
    arrays: dict[str, np.ndarray] = {"zero": np.int8(0), "exponent": np.float32(2.5)}
    for tensor, scale in probe.scales.items():
        arrays[f"{tensor}_scale"] = np.float32(scale)
        pairs += f"{tensor}_q = QuantizeLinear({tensor}, {tensor}_scale, zero) {tensor}_dq = DequantizeLinear({tensor}_q, {tensor}_scale, zero) "
    for index in (0, 1, 2, 4):
        arrays[f"w{index}"] = (rng.normal(size=(CHANNELS, 2 * CHANNELS if index == 4 else CHANNELS, 3, 3)) / 12).astype(
            np.float32
        )
    indices = np.int64 if name == "slice64" else np.int32
    arrays.update({key: np.array([value], indices) for key, value in (("start", 0), ("stop", SIZE // 2), ("axis", 2))})
    quantizers = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) {{ {pairs} y = Identity(x) }}'
    )
    after = {node.output[0]: node for node in quantizers.graph.node}
    nodes = []
    for tensor in ("x", *(node.output[0] for node in made.graph.node)):
        nodes += [node for node in made.graph.node if node.output[0] == tensor]
        nodes += [after[f"{tensor}_{end}"] for end in ("q", "dq") if f"{tensor}_{end}" in after]
    for node in nodes:
        node.name = f"{node.op_type}_{node.output[0]}"
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, CHANNELS, SIZE, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
        [numpy_helper.from_array(np.asarray(values), key) for key, values in arrays.items() if key in used],
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )


def int64_indices(folder: str) -> None:
    """Rewrites the networks of a bundle in place: every initializer of INT32 as INT64."""
    for path in Path(folder).glob("*.onnx"):
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.INT32:
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.int64), tensor.name))
        onnx.save(model, path)


def main(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, probe in PROBES.items():
        onnx.save(network(name), Path(folder) / f"{name}.onnx")
        print(f"{name}: {probe.question} Read by its {probe.read_by}.")


if __name__ == "__main__":
    int64_indices(sys.argv[2]) if sys.argv[1:2] == ["--int64"] else main(*sys.argv[1:])
