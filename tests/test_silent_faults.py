"""What once went wrong in silence: an invalid model, a lost scale, another function, without a word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.errors import ModelError, UserError
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


@pytest.mark.parametrize("kind", ["int32", "uint8"])
@pytest.mark.parametrize("through", [False, True])
def test_q1_a_quantizer_on_integers(kind: str, through: bool) -> None:
    """The scale belongs to the float tensor behind a Cast, because integers never have one (rule S2)."""
    source, before = ("i", f"i = Cast<to={6 if kind == 'int32' else 2}>(x)") if through else ("x", "")
    text = f"""g ({"float" if through else kind}[4,3] x) => (float[4,3] y, float[4,3] v) {{ {before}
        {pair(source, "d")} {pair(source, "e")} y = Abs(d)  v = Neg(e) }}"""
    t = translated(model(text, **S))
    assert ops(t) == (["Cast"] if through else []) + ["Cast", "Abs", "Neg"]  # one Cast for both quantizers
    assert scales_of(t) == {f"{source}_float": 0.5}
    x = np.arange(12).reshape(4, 3)
    results = run(t.model, {"x": x.astype(np.float32 if through else kind)})
    np.testing.assert_array_equal(results[0], x.astype(np.float32))
    np.testing.assert_array_equal(results[1], -x.astype(np.float32))


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
    assert ops(t) == ops(right) == ["Relu", "AveragePool", "AveragePool"]
    assert not right.diagnostics.of_rule("F3")


def test_f3_shapes_behind_an_unknown_operator_are_the_file_s() -> None:
    text = f"g (float[1,4,16,16] x) => (float[1,4] y) {{ {pair('x', 'd')} p = custom.Magic(d)  r = Relu(p)  f = Abs(r)  y = ReduceMean<axes=[2,3], keepdims=0>(f) }}"
    explicit = model(text, domains=("custom",), **S)
    explicit.graph.value_info.append(helper.make_tensor_value_info("p", 1, [1, 4, 6, 6]))
    t = translate(explicit)
    assert t.types.static_shape("f") == (1, 4, 6, 6) and not t.diagnostics.of_rule("F3")
    assert any(v.name == "p" for v in t.model.graph.value_info)


def test_d5_a_body_that_reads_a_rewritten_tensor() -> None:
    """The body of an If reads [N, C]; the tensor inside the region is [N, C, 1, 1]."""
    text = f"""g (float[1,3,2,2] x, bool c) => (float[1,5] y, float[1,8] v) {{ {pair("x", "q")}
        f = Flatten(q)  h = Gemm<transB=1>(f, w1)  r = Relu(h)  y = Gemm<transB=1>(r, w2)
        v = If<then_branch = g1 () => (float[1,8] t) {{ t = Identity(r) }}, else_branch = g2 () => (float[1,8] e) {{ e = Neg(r) }}>(c) }}"""
    explicit = model(text, w1=check.weights(1, 8, 12), w2=check.weights(2, 5, 8), **S)
    plain, rewritten = (translated(explicit, **check.ORIN, dla_rewrites=on) for on in (False, True))
    assert "Conv" in ops(rewritten) and "Gemm" not in ops(rewritten)
    for flag in (True, False):
        feed = {"x": np.random.default_rng(3).standard_normal((1, 3, 2, 2)).astype(np.float32), "c": np.array(flag)}
        for want, got in zip(run(plain.model, feed), run(rewritten.model, feed)):
            assert want.shape == got.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("body", [False, True])
def test_quantizers_of_another_domain_are_refused(body: bool) -> None:
    inner = "q = other.QuantizeLinear(x, s, z)  d = other.DequantizeLinear(q, s, z)"
    if body:
        inner = "d = If<then_branch = g1 () => (float[2,3] t) { q = other.QuantizeLinear(x, s, z)  t = other.DequantizeLinear(q, s, z) }, else_branch = g2 () => (float[2,3] e) { e = Neg(x) }>(c)"
    text = f"g (float[2,3] x, bool c) => (float[2,3] y) {{ {inner}  e = Exp(d)  {pair('e', 'y')} }}"
    with pytest.raises(UserError) as refusal:
        translate(model(text, domains=("other",), **S))
    assert "'q'" in str(refusal.value) if body else "of domain 'other'" in str(refusal.value)


@pytest.mark.parametrize("weights", ["baked", "float"])
@pytest.mark.parametrize("moved", [False, True])
def test_q7_codes_of_a_constant_that_are_a_graph_output(weights: str, moved: bool) -> None:
    """The output keeps its name and holds what the codes stand for."""
    values = np.random.default_rng(2).standard_normal((4, 4, 1, 1)).astype(np.float32)
    scale = (np.abs(values).max(axis=(1, 2, 3)) / np.float32(127)).astype(np.float32)
    codes = "c = QuantizeLinear<axis=0>(w, ws, wz)  " + (
        "o = Transpose<perm=[1,0,2,3]>(c)" if moved else "o = Identity(c)"
    )
    text = f"""g (float[1,4,5,5] x) => (float[1,4,5,5] y, int8[4,4,1,1] o) {{ {pair("x", "d")} {codes}
        v = DequantizeLinear<axis=0>(c, ws, wz)  y = Conv(d, v) }}"""
    t = translate(model(text, w=values, ws=scale, wz=np.zeros(4, np.int8), **S), TranslateOptions(weights=weights))
    onnx.checker.check_model(t.model, full_check=True)
    assert sorted(ops(t)) == ["Conv", "Identity"]
    x = np.ones((1, 4, 5, 5), np.float32)
    result = run(t.model, {"x": x}, ["o"])[0]
    on_grid = np.rint(values / scale.reshape(4, 1, 1, 1)) * scale.reshape(4, 1, 1, 1)
    np.testing.assert_allclose(result, on_grid.transpose(1, 0, 2, 3) if moved else on_grid, rtol=1e-6)
    expected = values if weights == "float" else on_grid
    np.testing.assert_allclose(initializer(t, t.weights[0].weight), expected, rtol=1e-6)


def test_a_model_without_outputs(tmp_path: Path) -> None:
    explicit = model(f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} y = Exp(d) }}", **S)
    del explicit.graph.output[:]
    with pytest.raises(ModelError, match="no outputs"):
        translate(explicit)


NORM = {"ga": np.full(4, 2.0), "be": np.ones(4), "me": np.full(4, 0.5), "va": np.full(4, 3.0)}


@pytest.mark.parametrize("outputs", ["y", "y, rm, rv"])
def test_f1_batchnorm_in_training_mode_stays(outputs: str) -> None:
    """It normalises by the batch at hand, which no constant weights can."""
    arrays = {name: values.astype(np.float32) for name, values in NORM.items()}
    text = f"""g (float[1,3,6,6] x) => (float[1,4,6,6] y) {{ {pair("x", "d")}
        c = Conv(d, w)  {outputs} = BatchNormalization<training_mode=1>(c, ga, be, me, va) }}"""
    t = translate(model(text, w=check.weights(0, 4, 3, 1, 1), **arrays, **S))
    assert ops(t) == ["Conv", "BatchNormalization"]
    np.testing.assert_array_equal(initializer(t, "w"), check.weights(0, 4, 3, 1, 1))


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


def test_f6_a_body_keeps_its_opset() -> None:
    """What stands in the branch of an If is not rewritten, so that the opset cannot be lowered around it."""
    branch = "float[2,3] {0}) {{ {0} = Neg(d) }}"
    body = f"y = If (c) <then_branch = t () => ({branch.format('a')}, else_branch = e () => ({branch.format('b')}>"
    explicit = model(
        f"g (float[2,3] x, bool c) => (float[2,3] y) {{ {pair('x', 'd')} {body} }}", 18, s=np.float32(0.1), z=np.int8(0)
    )
    with pytest.raises(UserError, match="its body"):
        translate(explicit, TranslateOptions(platform="jetpack-5.1.1"))


def test_q7_codes_of_a_constant_behind_a_cast() -> None:
    """Only data movement may stand between a constant's codes and the graph output that they are."""
    text = "g (float[2,3] x) => (float[2,3] y, int32[3] v) { q = QuantizeLinear(k, s, z) v = Cast<to=6>(q) "
    explicit = model(
        text + f"{pair('x', 'd')} y = Exp(d) }}", k=np.ones(3, np.float32), s=np.float32(0.1), z=np.int8(0)
    )
    with pytest.raises(UserError, match="integer arithmetic on the codes"):
        translate(explicit, TranslateOptions())
