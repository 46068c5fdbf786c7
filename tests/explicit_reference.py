"""The explicit model with its activation quantizers bypassed, made without any of the translator's code.

Weights stay as they are quantized and are dequantized by ONNX Runtime itself. What a pair clamps stays clamped.
"""

from __future__ import annotations

from typing import Any, Collection, Optional

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Q, DQ = "QuantizeLinear", "DequantizeLinear"
LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}


def bypassed(  # noqa: C901 (one branch a kind of quantizer, written apart from the translator)
    model: onnx.ModelProto, saturate_weights: bool = True, saturating: Collection[str] = ()
) -> onnx.ModelProto:
    """A copy in which every activation Q and DQ is an Identity, a Relu or a Clip.

    `saturate_weights`: int8 weight codes of -128 become -127 (rule W1 does so on purpose). `saturating`: outputs of symmetric quantizers
    that saturate in the copy, too (rule Q9).
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    names = [n.name for n in graph.node]
    if len(set(names)) < len(names):  # ONNX Runtime refuses duplicate names
        for index, node in enumerate(graph.node):
            node.name = f"{index}_{node.name}"
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    constant_names = set(constants)
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        if all(i in constant_names for i in node.input if i):
            constant_names.update(node.output)
    producers = {o: n for n in graph.node for o in n.output}

    def value(name: str) -> np.ndarray:
        if name in constants:
            return constants[name]
        node = producers[name]
        if node.op_type == "Cast":
            return value(node.input[0]).astype(helper.tensor_dtype_to_np_dtype(node.attribute[0].i))
        assert node.op_type in ("Identity", "Reshape"), node.op_type
        return value(node.input[0])

    def zero_point(node: onnx.NodeProto) -> np.ndarray:
        return value(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros((), np.uint8)

    if saturate_weights:
        for tensor in graph.initializer:
            readers = [n for n in graph.node if n.op_type == DQ and n.input[0] == tensor.name]
            if readers and tensor.data_type == TensorProto.INT8:
                tensor.CopyFrom(numpy_helper.from_array(np.maximum(constants[tensor.name], -127), tensor.name))
            elif any(n.op_type == Q and n.input[0] == tensor.name for n in graph.node):
                node = next(n for n in graph.node if n.op_type == Q and n.input[0] == tensor.name)
                weight, scale = constants[tensor.name], value(node.input[1])
                if scale.size > 1:
                    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
                    scale = scale.reshape([-1 if i == axis % weight.ndim else 1 for i in range(weight.ndim)])
                clipped = np.maximum(weight, (-127 * scale).astype(weight.dtype))
                if zero_point(node).dtype == np.int8 and not zero_point(node).any():
                    tensor.CopyFrom(numpy_helper.from_array(clipped, tensor.name))
    codes: dict[str, tuple[float, int, str]] = {}
    nodes = []
    for node in graph.node:
        if node.op_type == Q and node.input[0] not in constant_names:
            zero, scale = zero_point(node), value(node.input[1])
            saturates = not _is_symmetric(zero) or node.output[0] in saturating
            single = float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]), zero.dtype.name
            for name in node.output:
                codes[name] = single
            ends = (np.float32(code - zero.astype(np.int64)) * scale for code in LIMITS[zero.dtype.name])
            bounds = [] if not saturates else [min(next(ends).flat), max(next(ends).flat)]
            nodes.append(_clip(graph, node, bounds))
        elif node.op_type == DQ and node.input[0] not in constant_names:
            nodes.append(helper.make_node("Identity", [node.input[0]], list(node.output), node.name))
        elif any(i in codes for i in node.input):
            scale, zero, kind = next(codes[i] for i in node.input if i in codes)
            for name in node.output:
                codes[name] = (scale, zero, kind)
            if node.op_type == "Clip":
                node = _float_clip(graph, node, [value(i) for i in node.input[1:]], scale, zero, kind)
            nodes.append(node)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    for value_info in (*graph.input, *graph.output):
        if value_info.type.tensor_type.elem_type in (TensorProto.INT8, TensorProto.UINT8):
            value_info.type.tensor_type.elem_type = TensorProto.FLOAT
    del graph.value_info[:]
    return model


def _is_symmetric(zero: np.ndarray) -> bool:
    """INT8 saturates at the same values as such a quantizer."""
    return bool((zero == (0 if zero.dtype == np.int8 else 128)).all())


def _float_clip(
    graph: onnx.GraphProto, node: onnx.NodeProto, bounds: list[np.ndarray], scale: float, zero: int, kind: str
) -> onnx.NodeProto:
    """Without a bound that is the type's own limit, or that of the narrow range [-127, 127]: an earlier clamp has it,
    or INT8 saturates there."""
    real = [np.float32((int(bound) - zero) * scale) for bound in bounds]
    own = [abs(int(bound) - limit) <= 1 for bound, limit in zip(bounds, LIMITS[kind])]
    return _clip(graph, node, [None if is_own else value for value, is_own in zip(real, own)])


def _clip(graph: onnx.GraphProto, node: onnx.NodeProto, bounds: list[Any]) -> onnx.NodeProto:
    """The node as a Clip; None: no bound."""
    names = ["" if bound is None else f"{node.output[0]}_bound_{index}" for index, bound in enumerate(bounds)]
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(bound, np.float32), name) for bound, name in zip(bounds, names) if name
    )
    if not any(names):
        return helper.make_node("Identity", [node.input[0]], list(node.output), node.name)
    return helper.make_node("Clip", [node.input[0], *names], list(node.output), node.name)


def in_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """A half precision model with its weights as they are and its arithmetic in float32.

    ONNX Runtime's CPU kernels round half precision at places that depend on the neighbouring nodes, so two equal
    graphs give different bits; in float32 they can be compared. Weights are dequantized by ONNX Runtime first.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    if not any(t.data_type == TensorProto.FLOAT16 for t in graph.initializer):
        return model
    dequantizers = [n for n in graph.node if n.op_type == DQ]
    if dequantizers:
        wanted = [n.output[0] for n in dequantizers]
        probe = onnx.ModelProto.FromString(model.SerializeToString())
        del probe.graph.output[:]
        probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
        for name, weight in zip(wanted, run(probe, random_inputs(model), wanted)):
            graph.initializer.append(numpy_helper.from_array(weight, name))
        kept = [n for n in graph.node if n.op_type not in (Q, DQ)]
        del graph.node[:]
        graph.node.extend(kept)
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT16:
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float32)))
    del graph.value_info[:]
    return model


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Standard normal values in the type and shape of each graph input (dynamic dimensions are 1)."""
    rng = np.random.default_rng(seed)
    weights = {t.name for t in model.graph.initializer}
    feed = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = [d.dim_value or 1 for d in kind.shape.dim]
        feed[value.name] = rng.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return feed


def session(model: onnx.ModelProto) -> Any:
    """ONNX Runtime on the CPU with every graph optimization off."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray], outputs: Optional[list[str]] = None) -> list[np.ndarray]:
    return session(model).run(outputs, feed)


def assert_equal_function(expected: list[np.ndarray], actual: list[np.ndarray], relative: float = 1e-4) -> None:
    """Every output within `relative` of its largest value, the same shape and type."""
    assert len(expected) == len(actual)
    for want, got in zip(expected, actual):
        assert want.shape == got.shape and want.dtype == got.dtype
        assert np.isfinite(want).all() and np.isfinite(got).all()
        if not want.size:
            continue
        limit = relative * float(np.abs(want.astype(np.float64)).max())
        worst = float(np.abs(want.astype(np.float64) - got.astype(np.float64)).max())
        assert worst <= limit, f"differs by {worst:.3g}, allowed {limit:.3g}"
