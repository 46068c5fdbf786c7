"""What once went wrong in silence: an invalid model, a lost scale, another function, without a word."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any, Optional

import numpy as np
import onnx
import pytest
from onnx import helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import ModelError, UserError
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes import half_precision
from qdq_translator.translation.passes.names import name_nodes
from qdq_translator.translation.passes.normal_forms import apply_normal_forms
from qdq_translator.translation.scales.inference.formulas import inside_normalizations
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.platforms import installed_tensorrt
from qdq_translator.translation.targets.settings import resolve
from tests.dla import check
from tests.explicit_reference import run
from tests.small_models import initializer, model, ops, pair, same_function, scales_of, translated

S = {"s": np.float32(0.5), "z": np.int8(0)}
ON_GRID = (np.random.default_rng(0).integers(-9, 9, (4, 3)) / 2).astype(np.float32)


@pytest.mark.parametrize("mode", ["edge", "reflect", "constant"])
@pytest.mark.parametrize("value", ["", ", pv"])
def test_q10_pad_drops_the_code_that_it_pads_with(mode: str, value: str) -> None:
    """A Pad on codes may carry a constant that its mode never uses; on float values that constant has the wrong type."""
    text = f"""g (float[4,3] x) => (float[7,3] y) {{
        q = QuantizeLinear(x, s, z)  p = Pad<mode="{mode}">(q, pads{value})  d = DequantizeLinear(p, s, z)  y = Abs(d) }}"""
    t = same_function(model(text, pads=np.array([2, 0, 1, 0]), pv=np.int8(3), **S), {"x": ON_GRID}, exact=True)
    assert ops(t) == ["Pad", "Abs"] and scales_of(t) == {"x": 0.5, "p": 0.5}


def test_f3_a_shape_that_contradicts_the_network_decides_nothing() -> None:
    """The file says 7x7 where the network makes 16x16: one window of 7x7 would be another mean (rule D4)."""
    text = f"g (float[1,4,16,16] x) => (float[1,4,1,1] y) {{ {pair('x', 'd')} a = Relu(d)  y = ReduceMean<axes=[2,3]>(a) }}"
    explicit = model(text, **S)
    right = translated(explicit, **check.ORIN, dla_rewrites=True)
    explicit.graph.value_info.append(helper.make_tensor_value_info("a", 1, [1, 4, 7, 7]))
    explicit.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 9
    x = {"x": np.random.default_rng(1).standard_normal((1, 4, 16, 16)).astype(np.float32)}
    for options in ({}, {**check.ORIN, "dla_rewrites": True}):
        t = translated(explicit, **options)  # its checker refuses a shape that contradicts
        found = [d for d in t.diagnostics.of_rule("F3") if d.severity == "warning"]
        assert len(found) == 1 and found[0].data["declared"] == {"a": [1, 4, 7, 7], "y": [1, 4, 9, 1]}
        assert found[0].data["inferred"] == {"a": [1, 4, 16, 16], "y": [1, 4, 1, 1]}
        np.testing.assert_allclose(run(t.model, x)[0], x["x"].clip(0).mean(axis=(2, 3), keepdims=True), rtol=1e-5)
    assert ops(t) == ops(right) == ["Relu", "Conv"]
    assert not right.diagnostics.of_rule("F3")


def test_a_model_without_outputs(tmp_path: Path) -> None:
    explicit = model(f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} y = Exp(d) }}", **S)
    del explicit.graph.output[:]
    with pytest.raises(ModelError, match="no outputs"):
        translate(explicit)


@pytest.mark.parametrize(
    "size, parts, sizes",
    [(7, 3, [3, 3, 1]), (9, 5, [2, 2, 2, 2, 1]), (10, 4, [3, 3, 3, 1]), (5, 4, None), (9, 8, None)],
)
def test_f6_uneven_split(size: int, parts: int, sizes: list[int]) -> None:
    """The last part is what is left; where nothing is left for it, opset 17 has no such Split."""
    names = ", ".join(f"o{i}" for i in range(parts))
    outputs = ", ".join(f"float[2,n{i}] o{i}" for i in range(parts))
    text = (
        f"g (float[2,{size}] x) => ({outputs}) {{ {pair('x', 'd')} {names} = Split<axis=1, num_outputs={parts}>(d) }}"
    )
    explicit = model(text, 18, **S)
    if sizes is None:
        with pytest.raises(UserError, match="num_outputs"):
            translate(explicit, TranslateOptions(platform="jetpack-6.0"))
        return
    t = translated(explicit, platform="jetpack-6.0")
    node = t.model.graph.node[0]
    assert list(initializer(t, node.input[1])) == sizes
    x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    np.testing.assert_array_equal(np.concatenate(run(t.model, {"x": x}), axis=1), x)


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ('r = Relu(x) a = Resize<mode="linear">(r, , f)', 0, 127.5),
        ('r = Relu(x) a = Resize<mode="cubic">(r, , f)', 0, 127.5),
        ("r = Relu(x) c = Constant<value_float = 2.0>() a = Add(r, c)", 0, 127.5),
        ("r = Relu(x) c = Constant<value_float = -2.0>() a = Add(r, c)", 0, 127.5),
        ('r = Sigmoid(x) a = Resize<mode="linear">(r, , f)', None, None),
        ("r = Sigmoid(x) c = Constant<value_float = 2.0>() a = Add(r, c)", None, None),
        ("r = Sigmoid(x) c = Constant<value_float = -2.0>() a = Add(r, c)", 0, None),
    ],
)
def test_q9_each_bound_stays_where_it_can_act(body: str, low: Optional[float], high: Optional[float]) -> None:
    """Of uint8 with zero point 0, 0 and 127.5: a cubic Resize overshoots, a constant may be below 0, no value of a Sigmoid
    is near 127.5. Both stay as a Clip, 0 alone as a Relu."""
    arrays = {"f": np.float32([1, 1, 2, 2])} if "(r, , f)" in body else {}
    text = f"g (float[1,2,4,4] x) => (float[1,2,h,w] y) {{ {body} {pair('a', 'd')} y = Abs(d) }}"
    t = translated(model(text, s=np.float32(0.5), z=np.uint8(0), **arrays), asymmetric="widen")
    assert len(t.diagnostics.of_rule("Q9")) == (low is not None)
    assert ops(t).count("Relu") == ("Relu" in body) + (low is not None and high is None)
    found = [
        tuple(float(t.graph.array(name)) for name in node.inputs[1:]) for node in t.graph.nodes if node.is_op("Clip")
    ]
    assert found == ([] if high is None else [(low, high)])


def test_f8_normal_forms_are_logged_under_their_rule_once_each() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { c = Clip(x, k)  g1 = Gemm<alpha=0.5>(c, w)  y = Gemm(g1, w) }"
    graph = Graph.from_model(model(text, k=np.float32(0), w=np.eye(3, dtype=np.float32)))
    name_nodes(graph, Diagnostics())
    network = Network(graph, Diagnostics())
    apply_normal_forms(network, resolve(TranslateOptions(platform="jetpack-6.2"), Diagnostics()))
    logged = [(applied.rule, [name for name, _ in applied.before]) for applied in network.applied]
    assert sorted(logged) == [("F8", ["Clip_c"]), ("F8", ["Gemm_g1"])]


def test_k1_the_inside_of_a_normalization() -> None:
    text = """g (float[2,8] x) => (float[2,8] y) { m = ReduceMean<axes=[1]>(x)  d = Sub(x, m)  p = Pow(d, two)
        v = ReduceMean<axes=[1]>(p)  e = Add(v, eps)  r = Sqrt(e)  i = Reciprocal(r)  y = Mul(d, i) }"""
    graph = Graph.from_model(model(text, two=np.float32(2), eps=np.float32(1e-5)))
    inside = inside_normalizations(graph)
    assert inside == {"m", "d", "p", "v", "e", "r", "i"}


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ({"tensorrt": "10.3.0"}, (10, 3, 0)),
        ({"tensorrt-cu12": "8.6.1.post1"}, (8, 6, 1)),
        ({"tensorrt": "10.0rc1", "tensorrt-cu11": "8.5.3.1"}, (8, 5, 3)),
        ({}, None),
    ],
)
def test_f6_the_version_of_the_installed_tensorrt(
    versions: dict[str, str], found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        if package not in versions:
            raise metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(metadata, "version", version)
    assert installed_tensorrt() == found


def test_f9_the_error_of_double_constants_is_that_of_rounding() -> None:
    """Of those that float32 holds as numbers with all their digits: what lies below is next to 0 anyway."""
    values = np.array([1 / 3, 1e-42, 1.0, -0.1])
    done = half_precision._Done()
    np.testing.assert_array_equal(done.converted(onnx.numpy_helper.from_array(values)), values.astype(np.float32))
    rounded = np.abs(values.astype(np.float32) / values - 1)
    assert done.error == max(rounded[0], rounded[3]) and done.error < 1e-7 < rounded[1]
