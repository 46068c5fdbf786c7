"""Small models for the rule tests: textual ONNX in, translations whose function was compared out."""

from __future__ import annotations

import re
from typing import Any, Optional

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, copy_model
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.planning.placement import Placement, place
from qdq_translator.translation.translator import Translation
from tests.explicit_reference import assert_equal_function, bypassed, random_inputs, run

QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")


def parse(text: str) -> onnx.ModelProto:
    """A model in ONNX's textual form; a skip where this version of onnx cannot read the names of nodes in it."""
    if re.search(r"\[[A-Za-z]\w*\] \w+ = ", text) and tuple(map(int, onnx.__version__.split(".")[:2])) < (1, 18):
        pytest.skip("names of nodes in a textual model need onnx 1.18")
    return onnx.parser.parse_model(text)


def model(
    text: str, opset: int = 17, ir: int = 8, domains: tuple[str, ...] = (), **arrays: np.ndarray
) -> onnx.ModelProto:
    """`text`: a graph in ONNX's textual form; `arrays`: further initializers."""
    imports = ", ".join([f'"" : {opset}', *(f'"{d}" : 1' for d in domains)])
    made = parse(f"<ir_version: {ir}, opset_import: [{imports}]>\n{text}")
    for name, values in arrays.items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
    return made


def pair(source: str, target: str, scale: str = "s", zero: str = "z", extra: str = "") -> str:
    """`source -> Q -> DQ -> target`; `extra` stands between, from {target}_q to {target}_c."""
    middle = f"{target}_c" if extra else f"{target}_q"
    return (
        f"{target}_q = QuantizeLinear({source}, {scale}, {zero})\n{extra}\n"
        f"{target} = DequantizeLinear({middle}, {scale}, {zero})\n"
    )


def has_quantizers(graph: onnx.GraphProto) -> bool:
    return any(n.op_type in QUANTIZERS for n in graph.node)


def translated(explicit: onnx.ModelProto, **options: Any) -> Translation:
    """Translates and checks what holds for every model: valid, no Q/DQ, the input model untouched."""
    before = explicit.SerializeToString()
    translation = translate(explicit, TranslateOptions(**options))
    assert explicit.SerializeToString() == before
    stripped = translation.model
    assert not has_quantizers(stripped.graph)
    onnx.checker.check_model(stripped, full_check=True)
    assert [v.name for v in stripped.graph.output] == [v.name for v in explicit.graph.output]
    tensors = {v.name for v in stripped.graph.input} | {o for n in stripped.graph.node for o in n.output}
    assert set(translation.tensor_scales) <= tensors
    stale = {o.source for o in (translation.scales[n].origin for n in translation.tensor_scales)}
    assert {s for s in stale if s and ", " not in s} <= tensors | {t.name for t in stripped.graph.initializer}
    return translation


def same_function(
    explicit: onnx.ModelProto, feed: Optional[dict[str, np.ndarray]] = None, exact: bool = False, **options: Any
) -> Translation:
    """`translated`, and equal outputs: to the model with bypassed quantizers, or with `exact` to the explicit model
    itself (for inputs on the grid of its quantizers)."""
    translation = translated(explicit, **options)
    reference = explicit if exact else bypassed(explicit)
    feed = feed or random_inputs(translation.model, 3)
    names = [v.name for v in explicit.graph.output]
    expected = run(reference, feed, names)
    actual = run(translation.model, feed, names)
    if exact:
        for want, got in zip(expected, actual):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    else:
        assert_equal_function(expected, actual, 1e-5)
    return translation


def scales_of(translation: Translation) -> dict[str, float]:
    return dict(translation.tensor_scales)


def f32(value: float) -> float:
    """The float32 nearest to `value`, as a Python float: what the tables hold."""
    return float(np.float32(value))


def ops(translation: Translation) -> list[str]:
    return [n.op_type for n in translation.model.graph.node]


def initializer(translation: Translation, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(t for t in translation.model.graph.initializer if t.name == name))


def rounded_at_inputs(network: ImplicitNetwork) -> Placement:
    """As a Q/DQ model is read: every scale rounds, and layers compute in INT8 where their inputs have one. What tests of
    the arithmetic need; which layers TensorRT would leave above INT8 is another question."""
    graph = Graph.from_model(copy_model(network.model))
    scales = {name: scale for name, scale in network.scales.items() if name not in network.unary}
    return place(graph, TensorTypes(graph), scales, network.precisions, explicit=True)
