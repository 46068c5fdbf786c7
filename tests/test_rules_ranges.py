"""One authority for ranges: what the readers of a tensor can tell apart (rule S3 backward), data and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.core.command_options import ExplicitOptions
from qdq_translator.core.errors import UserError
from qdq_translator.lab.laboratory import OnnxRuntime, translate
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.explicit import explicit
from tests.small_models import model, pair, translated

ort = pytest.importorskip("onnxruntime")
OLD = onnx.defs.onnx_opset_version() < 23 or tuple(map(int, ort.__version__.split(".")[:2])) < (1, 22)
needs_opset_23 = pytest.mark.skipif(OLD, reason="float16 networks with float32 scales need opset 23")
S = {"s": np.float32(0.05), "t": np.float32(0.2), "z": np.int8(0)}


# ---------------------------------------------------------------- with data


def residual(clamp: str = "r = Relu(c)", end: str = "s = Add(b, c)") -> onnx.ModelProto:
    """A residual unit before its activation, as RefineNet has it: most values of `c` are negative."""
    random = np.random.default_rng(3)
    text = f"""g (float[N,4,10,10] x) => (float[N,3,10,10] y) {{
        c = Conv<pads=[1,1,1,1]>(x, w, b0)  {clamp}  b = Conv<pads=[1,1,1,1]>(r, w2)  {end}  y = Conv(s, w3) }}"""
    weights = {name: random.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32) for name in ("w", "w2")}
    wide = 8 if "Concat" in end else 4
    return model(
        text,
        **weights,
        w3=random.normal(0, 0.3, (3, wide, 1, 1)).astype(np.float32),
        b0=np.full(4, -2.0, np.float32),
        low=np.float32(0),
        high=np.float32(0.8),
    )


KINDS = [
    ("r = Relu(c)", "s = Add(b, c)"),
    ("r = Clip(c, low, high)", "s = Concat<axis=1>(b, c)"),
    ("m = Transpose<perm=[0,1,3,2]>(c)  q = Relu(m)  r = Transpose<perm=[0,1,3,2]>(q)", "s = Add(b, c)"),
]


def decibels(wanted: np.ndarray, got: np.ndarray) -> float:
    wanted, got = wanted.astype(np.float64), got.astype(np.float64)
    return float(10 * np.log10(np.square(wanted).sum() / max(np.square(wanted - got).sum(), 1e-300)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).standard_normal((24, 4, 10, 10)).astype(np.float32))
    return path


@pytest.mark.parametrize(("clamp", "end"), KINDS)
@pytest.mark.parametrize("method", ["max", "mse", "percentile", "entropy", "output"])
def test_s3_every_method_keeps_the_branch_that_skips_the_clamp(clamp: str, end: str, method: str, data: Path) -> None:
    network = residual(clamp, end)
    made = translate(network, TranslateOptions(preset="gpu", calibrate=str(data), calibrate_method=method))
    feed = {"x": np.random.default_rng(1).standard_normal((8, 4, 10, 10)).astype(np.float32)}
    wanted = Session(network, "float").run(feed)["y"]
    got = Session(simulate(ImplicitNetwork.of(made)).model, "simulated").run(feed)["y"]
    assert decibels(wanted, got) > 31


@needs_opset_23
@pytest.mark.parametrize(("clamp", "end"), KINDS)
def test_s3_holds_in_explicit_too(clamp: str, end: str, data: Path) -> None:
    network = residual(clamp, end)
    made = explicit(network, TranslateOptions(preset="gpu", calibrate=str(data)), lab=OnnxRuntime())
    feed = {"x": np.random.default_rng(1).standard_normal((8, 4, 10, 10)).astype(np.float32)}
    wanted = Session(network, "float").run(feed)["y"]
    assert decibels(wanted, Session(made.model, "explicit").run(feed)["y"]) > 31


# ---------------------------------------------------------------- bounds without data


def pooling(count: int, wide: bool = False) -> onnx.ModelProto:
    """Attention pooling of `count` steps as in a turn detector: features, quantized by the model, times their shares."""
    through = "m = Transpose<perm=[0,1]>(a)  a2 = Identity(m)" if wide else "a2 = Identity(a)"
    text = f"""g (float[{count},8] x) => (float[8] y) {{ {pair("x", "d")}
        q = MatMul(d, w)  a = Softmax<axis=0>(q)  {through}  p = Mul(d, a2)  r = ReduceSum<keepdims=0>(p, zero)
        y = Exp(r) }}"""
    random = np.random.default_rng(2)
    return model(text, **S, w=random.normal(0, 0.1, (8, 1)).astype(np.float32), zero=np.array([0]))


def test_s14_data_decide_instead(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((8 * 400, 8)).astype(np.float32))
    made = translate(pooling(400), TranslateOptions(preset="gpu", calibrate=str(tmp_path / "x.npy")))
    assert made.scales["a"].origin.rule == "K1" and made.scales["a"].amax < 0.1
    assert not made.diagnostics.of_rule("S14")


# ---------------------------------------------------------------- small ranges in float16


def small(amax: float, behind: str = "y = Conv(rd, w2)") -> onnx.ModelProto:
    """Two Convs whose values reach `amax`."""
    random = np.random.default_rng(4)
    text = f"""g (float[8,4,8,8] x) => (float[8,4,8,8] y) {{ {pair("x", "xd")}
        c = Conv<pads=[1,1,1,1]>(xd, w, b)  r = Relu(c) {pair("r", "rd", "t")} {behind} }}"""
    return model(
        text,
        s=np.float32(amax / 127),
        t=np.float32(2 * amax / 127),
        z=np.int8(0),
        w=random.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32),
        w2=random.normal(0, 0.3, (4, 4, 1, 1)).astype(np.float32),
        b=random.normal(0, amax / 10, 4).astype(np.float32),
        back=np.float32(1 / amax),
    )


@needs_opset_23
@pytest.mark.parametrize("scale_type", ["auto", "fp16"])
@pytest.mark.parametrize(("amax", "behind"), [
    (3e-3, "y = Conv(rd, w2)"),
    (3e-4, "y = Conv(rd, w2)"),
    (3e-6, "y = Conv(rd, w2)"),
    (3e-7, "q = Conv(rd, w2)  y = Relu(q)"),
    (3e-9, "q = Conv(rd, w2)  y = Mul(q, back)"),
])  # fmt: skip
def test_small_ranges_lose_nothing_in_explicit(amax: float, behind: str, scale_type: str) -> None:
    network = small(amax, behind)
    made = explicit(network, how=ExplicitOptions(scale_type=scale_type))
    feed = {"x": np.float32(amax / 3) * np.random.default_rng(1).standard_normal((8, 4, 8, 8)).astype(np.float32)}
    wide = explicit(network, how=ExplicitOptions(float_type="fp32"))
    lost = decibels(*(Session(one.model, "explicit").run(feed)["y"] for one in (wide, made)))
    raised = any("became 6.1e-05" in note for note in made.report.notes)
    assert raised == (scale_type == "fp16" and amax == 3e-3) and lost > (25 if raised else 44)
    assert bool(made.report.float32) == (amax < (1e-3 if scale_type == "fp16" else 1e-4) / 2)


def test_a_small_factor_stays_float32_in_explicit() -> None:
    text = f"g (float[2,4] x) => (float[2,4] y) {{ {pair('x', 'd')} a = Mul(d, f)  y = Add(a, f) }}"
    made = explicit(model(text, **S, f=np.float32(3e-7)))
    assert "few digits" in made.report.float32["Mul_a"] and "Add_y" not in made.report.float32


@needs_opset_23
def test_a_small_range_is_refused_on_a_dla() -> None:
    with pytest.raises(UserError, match="'x' reaches only 3e-07"):
        explicit(small(3e-7), TranslateOptions(preset="dla"), ExplicitOptions(allow_fp16=True))


# ---------------------------------------------------------------- saturating functions


@pytest.mark.parametrize(("call", "scale", "amax"), [
    ("Tanh", 1 / 127, np.arctanh(126.5 / 127)),
    ("Sigmoid", 1 / 127, np.log(126.5 / 0.5)),
    ("HardSigmoid<alpha=0.1666666667>", 1 / 127, 3.0),
    ("Tanh", 0.3 / 127, np.arctanh(0.3 * 126.5 / 127)),
])  # fmt: skip
def test_s13_a_conv_before_a_saturating_function_is_int8(call: str, scale: float, amax: float) -> None:
    def made(readers: str = "", **options: Any) -> Any:
        text = f"""g (float[1,4,6,6] x) => (float[1,4,6,6] y, float[1,4,6,6] o) {{ {pair("x", "d")}
            c = Conv(d, w)  a = {call}(c) {pair("a", "e", "u")} y = Exp(e)  o = {readers or "Exp(e)"} }}"""
        weights = np.random.default_rng(0).normal(0, 1, (4, 4, 1, 1)).astype(np.float32)
        return translated(model(text, **S, w=weights, u=np.float32(scale)), **options)

    t = made(preset="gpu" if "Hard" in call else "dla")
    assert t.scales["c"].amax == pytest.approx(amax, rel=1e-4) and t.scales["c"].origin.rule == "S13"
    assert next(row for row in t.plan if row.op == "Conv").precision == "int8"
    assert "c" not in made().scales and "c" not in made("Exp(c)", preset="gpu").scales
    values = np.linspace(-20, 20, 4001)
    function = {"Tanh": np.tanh, "Sigmoid": lambda x: 1 / (1 + np.exp(-x))}.get(
        call, lambda x: np.clip(x / 6 + 0.5, 0, 1)
    )
    most = 1.001 * t.scales["c"].amax  # at the range itself the output is between two steps
    cut = np.clip(values, -most, most)
    codes = [np.clip(np.rint(function(v) / np.float32(scale)), -127, 127) for v in (values, cut)]
    assert (codes[0] == codes[1]).all()


# ---------------------------------------------------------------- data decide


def inferred() -> onnx.ModelProto:
    """`p`, a SiLU of a tensor that the model quantizes too widely, has a range by rule S8; `c` in front of a SiLU the
    inverse."""
    text = f"""g (float[N,4,6,6] x) => (float[N,4,6,6] y, float[N,4,6,6] o) {{ {pair("x", "d")}
        s0 = Sigmoid(d)  p = Mul(d, s0)  q = Transpose<perm=[0,1,3,2]>(p)  y = Conv(q, w)
        c = Conv(d, w)  s1 = Sigmoid(c)  m = Mul(c, s1)  {pair("m", "m2", "u")} o = Conv(m2, w) }}"""
    w = np.random.default_rng(7).normal(0, 1, (4, 4, 1, 1)).astype(np.float32)
    return model(text, **S, w=w, u=np.float32(0.01))


def test_s14_a_worse_scale_gives_way_to_the_datas_and_what_follows_from_it_too(tmp_path: Path) -> None:
    values = 0.3 * np.random.default_rng(0).standard_normal((24, 4, 6, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    made = translate(inferred(), TranslateOptions(preset="gpu", calibrate=str(tmp_path / "x.npy")))
    plain = translate(inferred(), TranslateOptions(preset="gpu"))
    assert plain.scales["p"].origin.rule == "S8" and plain.scales["p"].amax > 2 * made.scales["p"].amax
    assert made.scales["p"].origin.rule == "K1" and made.scales["q"].value == made.scales["p"].value
    (told,) = made.diagnostics.of_rule("S14")
    assert "'p' (rule S8)" in told.message and "c" not in told.data["tensors"]
    # the SiLU hides the negative values of `c`: its range fits although they exceed it
    assert made.scales["c"].value == plain.scales["c"].value
