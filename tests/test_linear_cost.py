"""Slow, not wrong: what is counted grows with the model, not with its square. Calls are counted, not seconds."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions
from qdq_translator.translation.translator import Translation, translate

DLA = {"target": "orin-dla", "platform": "jetpack-6.2", "dla_rewrites": True}
SHAPE = [1, 4, 8, 8]


def net(nodes: list[onnx.NodeProto], outputs: list[str], **arrays: Any) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", *outputs)]
    initializers = [numpy_helper.from_array(np.asarray(values), name) for name, values in arrays.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def pair(source: str, target: str, scale: str) -> list[onnx.NodeProto]:
    codes = f"{target}_q"
    return [
        helper.make_node("QuantizeLinear", [source, scale, "z"], [codes]),
        helper.make_node("DequantizeLinear", [codes, scale, "z"], [target]),
    ]


def many_readers(size: int) -> onnx.ModelProto:
    nodes = pair("x", "d", "s") + [helper.make_node("Relu", ["d"], [f"y{i}"]) for i in range(size)]
    return net(nodes, [f"y{i}" for i in range(size)], s=np.float32(0.5), z=np.int8(0))


def many_quantizers(size: int, scales: int) -> onnx.ModelProto:
    nodes = []
    for i in range(size):
        nodes += [*pair("x", f"d{i}", f"s{i % scales}"), helper.make_node("Relu", [f"d{i}"], [f"y{i}"])]
    made = {f"s{i}": np.float32(0.5 + i / 1024) for i in range(scales)}
    return net(nodes, [f"y{i}" for i in range(size)], z=np.int8(0), **made)


def clashing_names(size: int) -> onnx.ModelProto:
    nodes, last = pair("x", "d", "s"), "d"
    arrays: dict[str, Any] = {"s": np.float32(0.5), "z": np.int8(0)}
    for i in range(size):
        name = ("a", "a_1", "a,1", "a*1", f"c{i}")[i % 5]
        arrays[f"c{i}"] = np.ones((1, 1, 1, 1), np.float32)
        nodes.append(helper.make_node("Add", [last, f"c{i}"], [f"c{i}_output"], name=name))
        last = f"c{i}_output"
    return net(nodes, [last], **arrays)


def wide_weight(size: int) -> onnx.ModelProto:
    nodes = [*pair("x", "d", "s"), *pair("f", "w", "s"), helper.make_node("MatMul", ["d", "w"], ["m"])]
    weights = np.linspace(-1, 1, 8 * size, dtype=np.float32).reshape(8, size)
    return net([*nodes, helper.make_node("Relu", ["m"], ["y"])], ["y"], s=np.float32(0.01), z=np.int8(0), f=weights)


def constant_chain(size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", [f"c{i}"], [f"c{i + 1}"]) for i in range(size)]
    return net([*nodes, *pair("x", "d", f"c{size}"), helper.make_node("Relu", ["d"], ["y"])], ["y"], c0=np.float32(0.5),
               z=np.int8(0))  # fmt: skip


CASES: dict[str, tuple[Callable[[int], onnx.ModelProto], dict[str, Any]]] = {
    "readers": (many_readers, {}),
    "readers on a DLA": (many_readers, DLA),
    "quantizers of one scale": (lambda n: many_quantizers(n, 1), {}),
    "quantizers of many scales": (lambda n: many_quantizers(n, n), {}),
    "quantizers on a DLA": (lambda n: many_quantizers(n, 1), DLA),
    "clashing names": (clashing_names, {"platform": "jetpack-6.2"}),
    "clashing names, renamed": (clashing_names, {"platform": "jetpack-6.2", "rename_node_outputs": True}),
    "output channels": (wide_weight, {}),
    "constants": (constant_chain, {}),
}


def steps(model: onnx.ModelProto, options: dict[str, Any]) -> int:
    """Lines of the program that run, comprehensions counted element by element."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if "qdq_translator" not in frame.f_code.co_filename:
            return None
        count += 1
        return trace

    translation: Translation
    old = sys.gettrace()
    sys.settrace(trace)
    try:
        translation = translate(model, TranslateOptions(**options))
    finally:
        sys.settrace(old)
    assert translation.plan
    return count


@pytest.mark.parametrize("case", CASES)
def test_cost_is_linear(case: str) -> None:
    """From n to 2n and to 4n the steps at most double and quadruple, but for what does not depend on n."""
    make, options = CASES[case]
    _, small, middle, large = (steps(make(size), options) for size in (50, 50, 100, 200))  # the first imports
    assert large - middle < 2.4 * (middle - small) + 200


def test_output_channels_are_not_counted_one_by_one() -> None:
    assert steps(wide_weight(2000), {}) < steps(wide_weight(40), {}) + 100  # computed with others
    assert steps(wide_weight(8000), {}) < steps(wide_weight(2100), {}) + 100  # alone
