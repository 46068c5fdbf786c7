"""Networks by construction: a float network and its Q/DQ form, made side by side, so that function and scales are known.

A case is a chain with branches of one of the rows of `LAYERS` after the other, on [1, C, H, W]. Each tensor may get a
quantizer in one of the dialects of `PAIRS`, each weight one of `WEIGHTS`. The float network has the dequantized weights.
What must hold (`find`): the translation computes what the float network computes; every tensor that was
quantized and is still there has its scale; another order of the nodes, other names, external data and an older opset change
no scale; the same input gives the same bytes; the restored network is translated to the same scales.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions
from qdq_translator.lab.laboratory import translate
from qdq_translator.translation.qdq.restore import restore
from qdq_translator.translation.translator import Translation
from tests.explicit_reference import assert_equal_function, run

OPSET, OLDER = 17, 15
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"platform": "jetpack-6.2", "infer_concat_scales": True, "infer_mul_scales": True},
    {"preset": "dla", "platform": "jetpack-6.2"},
    {"preset": "gpu", "platform": "jetpack-6.0"},
)
UNARY: dict[str, dict[str, Any]] = {
    **{
        key: {}
        for key in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Softplus", "Softsign", "Abs", "Erf", "Neg", "Sin", "Cos")
    },
    **{key: {} for key in ("Atan", "Identity", "Dropout", "GlobalAveragePool", "GlobalMaxPool", "Asinh", "Sinh")},
    "LeakyRelu": {"alpha": 0.1},
    "Elu": {"alpha": 0.7},
    "Selu": {},
    "Celu": {"alpha": 1.3},
    "HardSigmoid": {"alpha": 0.25, "beta": 0.4},
    "Shrink": {"lambd": 0.0, "bias": 0.0},
    "Softmax": {"axis": 1},
    "LogSoftmax": {"axis": -1},
    "LpNormalization": {"axis": 1, "p": 2},
    "MeanVarianceNormalization": {"axes": [2, 3]},
    "LRN": {"size": 3},
    "Cast": {"to": TensorProto.FLOAT},
    "MaxPool": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    "AveragePool": {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [0, 0, 1, 1], "count_include_pad": 1},
    "LpPool": {"kernel_shape": [2, 2], "p": 2},
    "ReduceMean": {"axes": [2, 3], "keepdims": 1},
    "ReduceMax": {"axes": [2], "keepdims": 1},
    "ReduceMin": {"axes": [3], "keepdims": 1},
    "ReduceL1": {"axes": [1], "keepdims": 1},
    "ReduceL2": {"axes": [1], "keepdims": 1},
    "ReduceSumSquare": {"axes": [1], "keepdims": 1},
    "ReduceLogSumExp": {"axes": [1], "keepdims": 1},
    "Transpose": {"perm": [0, 1, 3, 2]},
    "Einsum": {"equation": "bchw->bcwh"},
    "Flatten": {"axis": 2},
}
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean")
PAIRS = ("plain", "clip", "constants", "chain", "series", "two_readers")
WEIGHTS = ("float", "tensor", "channel", "codes", "turned")


class Network:
    """Both networks as they grow. scales: quantized tensor -> its scale."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.randrange(2**31))
        self.float_nodes: list[onnx.NodeProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.float_constants: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.scales: dict[str, float] = {}
        self.read: dict[str, list[str]] = {}
        """Tensor -> what the Q/DQ network may read in its stead."""
        self.shapes: dict[str, tuple[int, ...]] = {"x": (1, 4, 6, 6)}
        self.count = 0
        self._quantize("x")

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, values: Any) -> str:
        """The same in both."""
        name = self.name("k")
        self.constants[name] = self.float_constants[name] = np.asarray(values)
        return name

    def add(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> list[str]:
        names = [self.name("t") for _ in range(outputs)]
        self.float_nodes.append(helper.make_node(op, inputs, names, f"n_{names[0]}", **attributes))
        quantized = [self.rng.choice(self.read[i]) if i in self.read else i for i in inputs]
        self.nodes.append(helper.make_node(op, quantized, names, f"n_{names[0]}", **attributes))
        for name, shape in zip(names, self._shapes_of(names)):
            self.shapes[name] = shape
            self.read[name] = [name]
            if self.rng.random() < 0.5:
                self._quantize(name)
        return names

    def _shapes_of(self, names: list[str]) -> list[tuple[int, ...]]:
        graph = self.graph(self.float_nodes, self.float_constants, names)
        return [values.shape for values in run(graph, {"x": np.ones(self.shapes["x"], np.float32)}, names)]

    # ---------------------------------------------------------------- quantizers

    def _quantize(self, tensor: str) -> None:
        kind = self.rng.choice(PAIRS)
        scale = float(np.float32(self.rng.uniform(0.005, 0.1)))
        self.scales[tensor] = scale
        values, zero = self._parameter(np.float32(scale), kind), self._parameter(np.int8(0), kind)
        current = tensor
        for _ in range(2 if kind == "series" else 1):
            codes, real = self.name("q"), self.name("d")
            self.nodes.append(helper.make_node("QuantizeLinear", [current, values, zero], [codes], self.name("Q")))
            if kind == "clip":
                low, high = self._parameter(np.int8(-128), ""), self._parameter(np.int8(127), "")
                self.nodes.append(
                    helper.make_node("Clip", [codes, low, high], [clipped := self.name("c")], self.name("C"))
                )
                codes = clipped
            self.nodes.append(helper.make_node("DequantizeLinear", [codes, values, zero], [real], self.name("D")))
            current = real
        self.read[tensor] = [current]
        if kind == "two_readers":
            self.nodes.append(
                helper.make_node("DequantizeLinear", [codes, values, zero], [real := self.name("d")], self.name("D"))
            )
            self.read[tensor].append(real)

    def _parameter(self, value: Any, kind: str) -> str:
        name = self.name("p")
        if kind in ("constants", "chain"):
            held = name if kind == "constants" else self.name("p")
            self.nodes.append(
                helper.make_node("Constant", [], [held], self.name("K"), value=numpy_helper.from_array(value))
            )
            if kind == "chain":
                self.nodes.append(helper.make_node("Identity", [held], [name], self.name("I")))
        else:
            self.constants[name] = np.asarray(value)
        return name

    def weight(self, shape: tuple[int, ...], axis: int) -> str:
        """One that lies on the grid of int8: its channels along `axis` reach 127."""
        name, kind = self.name("w"), self.rng.choice(WEIGHTS)
        others = tuple(i for i in range(len(shape)) if i != axis)
        per_channel = kind in ("channel", "turned")
        codes = self.numbers.integers(-127, 128, shape).astype(np.int8)
        np.moveaxis(codes, axis, 0).reshape(shape[axis], -1)[:, 0] = 127
        codes[tuple(slice(None) if i == axis else 0 for i in range(len(shape)))] = 127
        scale = np.float32(self.numbers.uniform(0.001, 0.01, shape[axis] if per_channel else ()))
        along = scale.reshape([-1 if i == axis else 1 for i in range(len(shape))]) if per_channel else scale
        real = codes.astype(np.float32) * along
        assert real.max(axis=others).size == shape[axis]
        self.float_constants[name] = real
        if kind == "float":
            self.constants[name] = real
            return name
        zeros = np.zeros(scale.shape, np.int8)
        values, zero = self._parameter(scale, ""), self._parameter(zeros, "")
        turned, at = kind == "turned", axis
        made = self.name("v") if turned else name
        if turned:  # stored the other way round, with a Transpose behind its DequantizeLinear
            codes, at = np.ascontiguousarray(codes.transpose()), len(shape) - 1 - axis
        held = self._parameter(codes if kind in ("codes", "turned") else real, "")
        if kind not in ("codes", "turned"):
            self.nodes.append(
                helper.make_node(
                    "QuantizeLinear", [held, values, zero], [held := self.name("q")], self.name("Q"), axis=at
                )
            )
        self.nodes.append(helper.make_node("DequantizeLinear", [held, values, zero], [made], self.name("D"), axis=at))
        if turned:
            self.nodes.append(helper.make_node("Transpose", [made], [name], self.name("T")))
        return name

    # ---------------------------------------------------------------- models

    def graph(
        self, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], outputs: list[str], opset: int = OPSET
    ) -> onnx.ModelProto:
        used = {name for node in nodes for name in node.input}
        made = helper.make_graph(
            nodes,
            "by_construction",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 6, 6))],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes.get(name)) for name in outputs],
            [numpy_helper.from_array(values, name) for name, values in constants.items() if name in used],
        )
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _weighted(op: str) -> Callable[[Network, str], None]:
    def add(network: Network, tensor: str) -> None:
        _, channels, height, width = network.shapes[tensor]
        if op == "depthwise":
            weight = network.weight((channels, 1, 3, 3), 0)
            network.add("Conv", [tensor, weight], group=channels, pads=[1, 1, 1, 1])
        elif op == "Conv":
            size = network.rng.choice((1, 3))
            weight = network.weight((network.rng.choice((4, 8)), channels, size, size), 0)
            count = len(network.float_constants[weight])
            bias = network.constant(network.numbers.standard_normal(count).astype(np.float32))
            network.add("Conv", [tensor, weight, bias], pads=[size // 2] * 4)
        elif op == "ConvTranspose":
            network.add(op, [tensor, network.weight((channels, 4, 2, 2), 1)], strides=[2, 2] if height < 9 else [1, 1])
        elif op == "MatMul":
            network.add(op, [tensor, network.weight((width, 5), 1)])
        else:
            flat = network.add("Flatten", [tensor], axis=1)[0]
            dense = network.add("Gemm", [flat, network.weight((network.shapes[flat][1], 12), 1)])[0]
            network.add("Reshape", [dense, network.constant(np.array([1, 3, 2, 2]))])

    return add


def _unary(op: str) -> Callable[[Network, str], None]:
    def add(network: Network, tensor: str) -> None:
        made = network.add(op, [tensor], **UNARY[op])[0]
        if op == "Flatten":
            network.add("Reshape", [made, network.constant(np.array(network.shapes[tensor]))])

    return add


def _binary(op: str) -> Callable[[Network, str], None]:
    def add(network: Network, tensor: str) -> None:
        same = [name for name, shape in network.shapes.items() if shape == network.shapes[tensor] and name != tensor]
        channels = network.shapes[tensor][1]
        values = network.numbers.uniform(0.5, 1.5, (1, channels, 1, 1)).astype(np.float32)
        network.add(op, [tensor, network.rng.choice(same) if same else network.constant(values)])

    return add


def _with(
    op: str, *values: Callable[[tuple[int, ...]], Any], outputs: int = 1, **attributes: Any
) -> Callable[[Network, str], None]:
    """An operator whose further inputs are constants, made of the sizes of the first."""

    def add(network: Network, tensor: str) -> None:
        sizes = network.shapes[tensor]
        inputs = [network.constant(made) if (made := value(sizes)) is not None else "" for value in values]
        names = network.add(op, [tensor, *inputs], outputs, **attributes)
        if len(names) > 1:
            network.add("Concat", names[::-1], axis=1)

    return add


def _reals(axis: int, low: float = 0.5) -> Callable[[tuple[int, ...]], np.ndarray]:
    return lambda sizes: np.random.default_rng(7).uniform(low, 1.5, sizes[axis]).astype(np.float32)


def _factors(sizes: tuple[int, ...]) -> np.ndarray:
    return np.array([1, 1, 2, 2] if sizes[2] < 9 and sizes[3] < 9 else [1, 1, 1, 1], np.float32)


LAYERS: dict[str, Callable[[Network, str], None]] = {
    **{op: _weighted(op) for op in ("Conv", "depthwise", "ConvTranspose", "MatMul", "Gemm")},
    **{op: _unary(op) for op in UNARY},
    **{op: _binary(op) for op in BINARY},
    "Clip": _with("Clip", lambda _: np.float32(-0.7), lambda _: np.float32(1.3)),
    "Pow": _with("Pow", lambda _: np.float32(2)),
    "Div": _with("Div", lambda sizes: _reals(1)(sizes).reshape(1, -1, 1, 1)),
    "PRelu": _with("PRelu", lambda sizes: _reals(1, 0.1)(sizes).reshape(-1, 1, 1)),
    "BatchNormalization": _with("BatchNormalization", *(_reals(1) for _ in range(4))),
    "InstanceNormalization": _with("InstanceNormalization", _reals(1), _reals(1)),
    "LayerNormalization": _with("LayerNormalization", _reals(3), _reals(3)),
    "Slice": _with("Slice", lambda _: np.array([0]), lambda _: np.array([2**62]), lambda _: np.array([2])),
    "Split": _with("Split", lambda sizes: np.array([1, sizes[1] - 1]) if sizes[1] > 1 else np.array([1]), axis=1),
    "Gather": _with("Gather", lambda sizes: np.arange(sizes[1])[::-1].copy(), axis=1),
    "Pad": _with("Pad", lambda _: np.array([0, 0, 1, 0, 0, 0, 0, 1])),
    "Resize": _with("Resize", lambda _: None, _factors, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    "linear": _with("Resize", lambda _: None, _factors, mode="linear"),
    "Expand": _with("Expand", lambda sizes: np.array(sizes)),
    "Tile": _with("Tile", lambda _: np.array([1, 1, 1, 1])),
    "Where": _with("Mul", lambda sizes: (np.arange(sizes[3]) % 2).astype(np.float32)),
    "CumSum": _with("CumSum", lambda _: np.array(3)),
    "Unsqueeze": _with("Unsqueeze", lambda _: np.array([4])),
}  # fmt: skip


def _split(network: Network, tensor: str) -> None:
    channels = network.shapes[tensor][1]
    if channels > 1:
        sizes = network.constant(np.array([1, channels - 1]))
        network.add("Concat", network.add("Split", [tensor, sizes], 2, axis=1)[::-1], axis=1)


def _unsqueeze(network: Network, tensor: str) -> None:
    axes = network.constant(np.array([1]))
    network.add("Squeeze", [network.add("Unsqueeze", [tensor, axes])[0], axes])


def _shuffle(network: Network, tensor: str) -> None:
    _, channels, height, width = network.shapes[tensor]
    if height % 2 == 0 and width % 2 == 0 and channels * 4 <= 32:
        network.add("DepthToSpace", [network.add("SpaceToDepth", [tensor], blocksize=2)[0]], blocksize=2, mode="CRD")


def _gate(network: Network, tensor: str) -> None:
    network.add("Mul", [tensor, network.add("Sigmoid", [tensor])[0]])


LAYERS.update(Split=_split, Unsqueeze=_unsqueeze, SpaceToDepth=_shuffle, gate=_gate)


# -------------------------------------------------------------------- what must hold


def made(rng: random.Random) -> Network:
    """A network of 2 to 9 rows."""
    network = Network(rng)
    for _ in range(rng.randint(2, 9)):
        images = [name for name, shape in network.shapes.items() if len(shape) == 4]
        LAYERS[rng.choice(sorted(LAYERS))](network, rng.choice(images[-3:]))
    return network


def explicit_of(network: Network, opset: int = OPSET) -> onnx.ModelProto:
    """The Q/DQ network; every tensor of the float network that nothing reads is an output."""
    return network.graph(network.nodes, network.constants, outputs_of(network), opset)


def outputs_of(network: Network) -> list[str]:
    read = {name for node in network.float_nodes for name in node.input}
    return [name for name in network.shapes if name not in read and name != "x"]


def another_order(nodes: list[onnx.NodeProto], rng: random.Random) -> list[onnx.NodeProto]:
    """The same nodes, in another order that ONNX allows."""
    waiting, order = list(nodes), []
    makers = {name for node in nodes for name in node.output}
    done: set[str] = set()
    while waiting:
        ready = [n for n in waiting if all(i in done or i not in makers for i in n.input)]
        node = rng.choice(ready)
        waiting.remove(node)
        order.append(node)
        done.update(node.output)
    return order


def find(rng: random.Random, options: dict[str, Any]) -> str:
    """'' where all holds, else what does not."""
    network = made(rng)
    explicit, wanted = explicit_of(network), TranslateOptions(**options)
    first = translate(explicit, wanted)
    return (
        function_fault(first, network)
        or scale_fault(first, network.scales, options.get("preset") == "dla")
        or clamp_fault(first, network.scales)
        or _same_bytes(first, translate(explicit, wanted))
        or _variants(network, first, wanted, rng)
        or ("" if options else _restored(first, network))
    )


def function_fault(translation: Translation, network: Network) -> str:
    """Whether the translation computes what the float network computes; '' too where that overflows."""
    outputs = outputs_of(network)
    feed = {"x": np.random.default_rng(len(network.nodes)).standard_normal((1, 4, 6, 6)).astype(np.float32)}
    expected = run(network.graph(network.float_nodes, network.float_constants, outputs), feed, outputs)
    if not all(np.isfinite(values).all() for values in expected):
        return ""
    try:
        assert_equal_function(expected, run(_without_clamps(translation.model), feed, outputs), 1e-4)
    except AssertionError as error:
        return f"another function: {str(error)[:120]}"
    return ""


def _without_clamps(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network without the nodes that stand for saturation (rule Q9), which the float function does not have."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for node in copy.graph.node:
        if is_clamp(node.op_type, node.name):
            del node.input[1:]
    return copy


def is_clamp(op: str, name: str) -> bool:
    """Whether a node stands for the saturation of a quantizer (rule Q9)."""
    return op == "Clip" and name.endswith("_clamp")


def clamp_fault(translation: Translation, known: dict[str, float]) -> str:
    """Whether each clamp of a tensor that was quantized saturates where that quantizer does."""
    values = {t.name: float(numpy_helper.to_array(t)) for t in translation.model.graph.initializer if not t.dims}
    for node in translation.model.graph.node:
        scale = known.get(node.output[0][: -len("_clamp")])
        if is_clamp(node.op_type, node.name) and scale is not None:
            found = [values[name] / scale if name else None for name in node.input[1:]]
            for steps, allowed in zip(found, ((-128, -127, 0), (127,))):
                if steps is not None and min(abs(steps - one) for one in allowed) > 0.01:
                    return f"the clamp '{node.name}' saturates at {steps} steps"
    return ""


def scale_fault(translation: Translation, known: dict[str, float], raised: bool = False) -> str:
    """raised: ranges that a DLA must share may have become larger (rule U1)."""
    there = {*translation.graph.inputs, *translation.graph.producer}
    for name, scale in known.items():
        clamps = [node for node in translation.graph.consumers(name) if is_clamp(node.op_type, node.name)]
        named = (name, *(clamp.outputs[0] for clamp in clamps))
        found = [translation.tensor_scales.get(one, 0.0) for one in named]
        if name in there and not any(one >= scale if raised else one == scale for one in found):
            return f"tensor '{name}' has the scale {found[0]} and was quantized with {scale}"
    return ""


def _same_bytes(one: Translation, other: Translation) -> str:
    same = one.model.SerializeToString(deterministic=True) == other.model.SerializeToString(deterministic=True)
    return "" if same and one.cache.to_text() == other.cache.to_text() else "another result of the same input"


def _variants(network: Network, first: Translation, options: TranslateOptions, rng: random.Random) -> str:
    outputs = outputs_of(network)
    shuffled = network.graph(another_order(network.nodes, rng), network.constants, outputs)
    renamed = explicit_of(network)
    for node in renamed.graph.node:
        node.name = f"other/{node.name}"
    scales = dict(first.tensor_scales)
    reordered = dict(translate(shuffled, options).tensor_scales)
    if any(
        reordered.get(name) != scales.get(name) for name in network.scales
    ):  # of two branches the last infers a scale
        return "the order of nodes changes scales"
    models = [("names of nodes", renamed)]
    if not any(node.op_type == "LayerNormalization" for node in network.nodes):
        models.append(("the opset", explicit_of(network, OLDER)))
    for what, model in models:
        if dict(translate(model, options).tensor_scales) != scales:
            return f"{what} changes scales"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "external.onnx"
        onnx.save(explicit_of(network), path, save_as_external_data=True, location="w.bin", size_threshold=0)
        external = translate(path, options)
        if dict(external.tensor_scales) != scales or external.cache.to_text() != first.cache.to_text():
            return "external data change scales"
    return ""


def _restored(first: Translation, network: Network) -> str:
    """Every scale that the network stated is there again after the way back and forth (rule 5 of restore)."""
    there = {*first.graph.inputs, *first.graph.producer}
    stated = {name for name in network.scales if name in there}
    if not stated:
        return ""
    model = onnx.ModelProto.FromString(first.model.SerializeToString())
    again = translate(restore(model, dict(first.cache.scales), {}, frozenset(stated)).model)
    lost = [name for name in stated if again.tensor_scales.get(name) != network.scales[name]]
    return f"restored without the scale of '{sorted(lost)[0]}'" if lost else ""
