"""Rule V1: the written network computes the function of the model (rules Q9 and F12), checked by running both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.cli import main
from qdq_translator.commands.verify import Options
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UserError
from qdq_translator.lab.laboratory import OnnxRuntime, translate
from qdq_translator.lab.simulate.faithful import difference
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.run import Session
from qdq_translator.lab.verification import verify
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes import strip
from qdq_translator.translation.qdq import explicit as qdq_explicit
from qdq_translator.translation.qdq import pairs
from qdq_translator.translation.qdq import restore as qdq_restore
from qdq_translator.translation.quantizers.saturation import saturate, saturate_at, saturate_both
from tests.conftest import SHARED, need_shared
from tests.small_models import model

quantization = pytest.importorskip("onnxruntime.quantization")
ACTIVATIONS = ("Relu", "Clip", "HardSwish", "Sigmoid", "Tanh", "Neg")
RELU6 = SHARED / "cases" / "faithful" / "relu6"


def float_network(seed: int) -> onnx.ModelProto:
    """Convs, each behind one of `ACTIVATIONS`, with a residual branch and a pooled end."""
    random = np.random.default_rng(seed)
    nodes, init, x = [], {"zero": np.float32(0), "six": np.float32(6)}, "x"
    kinds = random.choice(ACTIVATIONS, 4)
    for index, kind in enumerate(kinds):
        init[f"w{index}"] = random.normal(0, 0.6, (6, 3 if index == 0 else 6, 3, 3)).astype(np.float32)
        init[f"b{index}"] = random.normal(0, 1, 6).astype(np.float32)
        more = ", zero, six" if kind == "Clip" else ""
        nodes += [
            f"c{index} = Conv <pads = [1, 1, 1, 1]> ({x}, w{index}, b{index})",
            f"a{index} = {kind} (c{index}{more})",
        ]
        x = f"a{index}"
    nodes += ["s = Add (a3, a1)", "p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (s)", "y = Conv (p, wl)"]
    init["wl"] = random.normal(0, 0.3, (4, 6, 1, 1)).astype(np.float32)
    return model("g (float[1,3,12,12] x) => (float[1,4,6,6] y) {" + "\n".join(nodes) + "}", 14, **init)


def floats(text: str, opset: int = 14, **arrays: Any) -> Graph:
    """A graph in ONNX's textual form with initializers in single precision."""
    return Graph.from_model(model(text, opset, **{n: np.asarray(values, np.float32) for n, values in arrays.items()}))


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, batches: np.ndarray) -> None:
        self.batches = iter(batches)

    def get_next(self) -> Any:
        values = next(self.batches, None)
        return None if values is None else {"x": values[None]}


def quantized(seed: int, folder: Path, **options: Any) -> tuple[onnx.ModelProto, np.ndarray]:
    """A network as ONNX Runtime quantizes it by default (zero points; Relu and Clip folded into the quantizers)."""
    values = np.random.default_rng(seed + 1000).normal(0, 1, (8, 3, 12, 12)).astype(np.float32)
    onnx.save(float_network(seed), folder / "float.onnx")
    quantization.quantize_static(folder / "float.onnx", folder / "q.onnx", Reader(values), **options)
    return onnx.load(folder / "q.onnx"), values


def decibels(reference: np.ndarray, other: np.ndarray) -> float:
    noise = ((reference - other.reshape(reference.shape)).astype(np.float64) ** 2).sum()
    return float(10 * np.log10((reference.astype(np.float64) ** 2).sum() / max(noise, 1e-30)))


@pytest.mark.parametrize("options", [{"preset": "gpu"}, {"preset": "dla"}, {"preset": "gpu", "keep_fp16": ["*"]}])
@pytest.mark.parametrize("seed", range(4))
def test_the_law_on_default_exports_of_onnx_runtime(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    """Q9: the written network is the float model with the quantizers' saturation, far beyond their bounds too."""
    explicit, values = quantized(seed, tmp_path)
    made = translate(explicit, TranslateOptions(**options))
    given = onnx.load(tmp_path / "q.onnx")
    for tensor in given.graph.initializer:  # rule W1: TensorRT's weights have no -128
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) == 4:
            codes = np.maximum(onnx.numpy_helper.to_array(tensor), -127)
            tensor.CopyFrom(onnx.numpy_helper.from_array(codes, tensor.name))
    saturated = Graph.from_model(given)
    graph, stated = Graph.from_model(made.model), {n: s.value for n, s in made.scales.items() if s.explicit}
    if "keep_fp16" in options:
        saturate(saturated)
    else:
        saturate_both(saturated, graph, stated)  # Tanh has a symmetric quantizer
    reference, written = Session(saturated.to_model(), "saturated"), Session(graph.to_model(), "written")
    for factor in (1, 6):
        feed = {"x": values[:1] * np.float32(factor)}
        assert decibels(reference.run(feed)["y"], written.run(feed)["y"]) > 60


def trained_ranges(folder: Path) -> onnx.ModelProto:
    """A network with symmetric ranges that cut values, as PACT and LSQ train them: half of what the data reach."""
    explicit, _ = quantized(1, folder, activation_type=quantization.QuantType.QInt8, extra_options=SYMMETRIC)
    for tensor in explicit.graph.initializer:
        if tensor.name.endswith("_scale") and tensor.name[:1] in "acsp":
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) / 2, tensor.name))
    return explicit


SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}


@pytest.mark.parametrize("options", [{"preset": "gpu"}, {"preset": "dla"}])
@pytest.mark.parametrize("kept", [[], ["*"], ["Conv_c1*", "Conv_c3*"]])
@pytest.mark.parametrize("calibrated", [False, True])
def test_trained_symmetric_ranges_saturate_before_layers_above_int8(
    options: dict[str, Any], kept: list[str], calibrated: bool, tmp_path: Path
) -> None:
    """Q9: what is not INT8 in the plan saturates by a node. On a DLA without data, what no clipped Relu does is named."""
    explicit = trained_ranges(tmp_path)
    values = np.random.default_rng(5).normal(0, 2, (4, 3, 12, 12)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=values)
    if calibrated:
        options = {**options, "calibrate": str(tmp_path / "data.npz")}
    made = translate(explicit, TranslateOptions(**options, keep_fp16=kept))
    named = [d.data["ranges"] for d in made.diagnostics if d.rule == "Q9" and "ranges" in d.data]
    assert not named or (options["preset"] == "dla" and not calibrated)
    if named:
        return
    network = ImplicitNetwork.of(made)
    held = simulate(network).placement.held
    graph, saturated = network.graph(), Graph.from_model(explicit)
    saturate(saturated)
    saturate_at(graph, held)
    reference, written = Session(saturated.to_model(), "saturated"), Session(graph.to_model(), "written")
    found = [decibels(reference.run({"x": v[None]})["y"], written.run({"x": v[None]})["y"]) for v in values]
    assert min(found) > 40, found


def test_nvidias_behaviour_adds_no_saturation(tmp_path: Path) -> None:
    made = translate(trained_ranges(tmp_path), TranslateOptions(keep_fp16=["*"]))
    assert not any(d.rule == "Q9" for d in made.diagnostics)


def test_a_lost_bound_is_an_error_that_names_the_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explicit, _ = quantized(0, tmp_path)
    whole = strip._acting
    monkeypatch.setattr(strip, "_acting", lambda bounds, values: (whole(bounds, values)[0], None))
    with pytest.raises(UserError, match=r"Nothing is written.* tensor that differs is '.+' \(rule V1\)"):
        translate(explicit, TranslateOptions(preset="gpu"))


BODY = "c = Conv <pads = [1, 1, 1, 1]> (x, w)\nr = Clip (c, low, high)\nd = Conv (r, v)\ny = Tanh (d)"


def small(body: str = BODY, factor: float = 1.0, back: float = 1.0) -> Graph:
    random = np.random.default_rng(0)
    arrays = {
        "w": random.normal(0, 0.2, (8, 3, 3, 3)) * factor,
        "v": random.normal(0, 0.1, (5, 8, 1, 1)) * back,
        "low": np.float32(-2 * factor),
        "high": np.float32(9 * factor),
    }
    return floats(f"g (float[1,3,8,8] x) => (float[1,5,a,b] y) {{ {body} }}", **arrays)


@pytest.mark.parametrize(("body", "first"), [
    (BODY.replace("r = Clip (c, low, high)", "r = Identity (c)"), "r"),
    (BODY.replace("r = Clip (c, low, high)", "r = Clip (c, low)"), "r"),
    (BODY.replace("r = Clip (c, low, high)", "r = Clip (c, , high)"), "r"),
    (BODY.replace("pads = [1, 1, 1, 1]", "pads = [0, 0, 2, 2]"), "c"),
    (BODY.replace("y = Tanh (d)", "y = Erf (d)"), "y"),
    (BODY.replace("d = Conv (r, v)", "f = Conv (r, v)\nd = Neg (f)"), "d"),
])  # fmt: skip
def test_another_function_is_named_by_its_first_tensor(body: str, first: str) -> None:
    """No value of the input reaches a bound of the Clip by itself."""
    found = difference(small(), small(body), {})
    assert found is not None and (found.tensor, found.output, found.chaos) == (first, "y", False)


@pytest.mark.parametrize(
    "written",
    [
        small(),
        small(BODY.replace("r = Clip (c, low, high)", "e = Clip (c, low)\nr = Clip (e, , high)")),
        small(factor=0.5, back=2),
        small(BODY.replace("y = Tanh (d)", "e = Neg (d)\nf = Tanh (e)\ny = Neg (f)")),
    ],
    ids=["same", "two clips", "equalized", "other form"],
)
def test_the_same_function_in_another_form(written: Graph) -> None:
    """Weights that are rescaled in pairs (`--equalize`) change tensors between them, and not the outputs."""
    assert difference(small(), written, {}) is None


def test_equal_nodes_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = Session.run

    def counted(self: Session, feed: Any) -> Any:
        ran.append(self.what)
        return run(self, feed)

    monkeypatch.setattr(Session, "run", counted)
    assert difference(small(), small(), {}) is None and ran == []
    free = small(BODY.replace("y = Tanh (d)", "e = Neg (d)\nf = Tanh (e)\ny = Neg (f)"))
    assert difference(small(), free, {}) is None and ran == ["given", "written"]
    ran.clear()
    clamped = small(BODY.replace("r = Clip (c, low, high)", "e = Max (c, low)\nr = Min (e, high)"))
    assert difference(small(), clamped, {}) is None
    assert ran == ["given", "written"] * 2  # beyond the bounds, and as it is


@pytest.mark.parametrize(("bias", "same"), [("row", True), ("vector", True), ("other", False)])
def test_a_bias_behind_its_product_is_no_difference(bias: str, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Gemm and the Gemm and Add that a translation makes of it compute the same, whatever the shape of the bias."""
    values = {"w": np.arange(12).reshape(3, 4), "vector": np.arange(4), "row": np.arange(4)[None], "other": np.ones(4)}
    sides = []
    for body in ("y = Gemm (x, w, vector)", f"m = Gemm (x, w)\ny = Add (m, {bias})"):
        used = {name: array for name, array in values.items() if name in body}
        sides.append(floats(f"g (float[2,3] x) => (float[2,4] y) {{ {body} }}", **used))
    if same:
        monkeypatch.delattr(Session, "run")  # nothing is to be run
    assert (difference(*sides, {}) is None) == same


def test_chaos_is_said_instead() -> None:
    """A network that amplifies the last bit of its weights has no function beyond that."""

    def network(factor: np.float32, t: str) -> Graph:
        """t: how its tensors are called."""
        lines = " ".join(f"{t}{i + 1} = Sin (s{t}{i}) s{t}{i + 1} = Mul ({t}{i + 1}, g)" for i in range(12))
        body = f"s{t}0 = Mul (x, g) {lines} y = Sin (s{t}12)"
        return floats(f"g (float[1,64] x) => (float[1,64] y) {{ {body} }}", g=np.full(64, factor))

    factor = np.float32(31.4)
    found = difference(network(factor, "t"), network(np.nextafter(factor, np.float32(99)), "u"), {})
    assert found is not None and found.chaos and found.db < 20


@pytest.mark.parametrize(("bound", "same"), [("two", True), ("three", False)])
def test_a_clamp_under_the_name_of_its_relu(bound: str, same: bool) -> None:
    """What follows is compared with the model's values again, so that a deep network does not amplify its rounding."""
    chaos = "\n".join(f"t{i} = Sin (s{i})\ns{i + 1} = {{}} (t{i}, {{}})" for i in range(12))
    sides = []
    for clamp, how in (
        ("r = Relu (a)\nk = Clip (r, zero, two)\ns0 = Mul (k, g)", ("Mul", "g")),
        (f"r = Clip (a, zero, {bound})\ns0 = Mul (r, g)", ("Div", "h")),
    ):
        body = f"a = Mul (x, half)\n{clamp}\n{chaos.format(*how * 12)}\ny = Sin (s12)"
        values = {"g": 31.4, "h": 1 / 31.4, "half": 0.5, "zero": 0.0, "two": 2.0, "three": 3.0}
        sides.append(floats(f"g (float[1,64] x) => (float[1,64] y) {{ {body} }}", **values))
    assert (difference(*sides, {}) is None) == same


def test_relu6_stays_near_the_float_model() -> None:
    """Case `faithful/relu6`: every preset, with layers in FP16, and calibrated."""
    folder = need_shared(RELU6)
    values = np.load(folder / "val.npz")["x"][:4]
    wanted = [Session(onnx.load(folder / "float.onnx"), "float").run({"x": v[None]})["y"] for v in values]
    for options in ({"preset": "gpu"}, {"preset": "dla"}, {"preset": "dla", "keep_fp16": ["conv1", "conv2"]}):
        for more in ({}, {"calibrate": str(folder / "cal.npz")}):
            made = translate(str(folder / "qdq.onnx"), TranslateOptions(**options, **more))
            written = Session(made.model, "written")
            found = [decibels(want, written.run({"x": v[None]})["y"]) for want, v in zip(wanted, values)]
            assert min(found) > 30


@pytest.mark.parametrize(
    ("line", "wrong"), [("HardSwish (c)", 4.0), ("HardSigmoid <alpha = 0.2, beta = 0.5> (c)", 1.5)]
)
def test_a_bound_inside_an_activation_is_reached(line: str, wrong: float) -> None:
    """The Conv's own values stay far below it."""
    head = "g (float[1,3,8,8] x) => (float[1,4,8,8] y) {c = Conv (x, w)\n"
    weights = np.random.default_rng(0).normal(0, 0.01, (4, 3, 1, 1)).astype(np.float32)
    open_ended = "a = Mul (c, alpha)\nb = Add (a, beta)\nd = Clip (b, zero, wrong)\n"
    whole = line.startswith("HardSwish")
    body = open_ended + ("y = Mul (c, d)" if whole else "y = Identity (d)")
    sides = []
    for text in (f"y = {line}", body):
        values = {"w": weights, "alpha": 1 / 6 if whole else 0.2, "beta": 0.5, "zero": 0.0, "wrong": wrong}
        sides.append(floats(f"{head}{text}}}", **values))
    assert difference(*sides, {}) is not None


@pytest.mark.parametrize("preset", ["gpu", "dla"])
def test_verify_knows_which_saturation_is_a_node(preset: str, tmp_path: Path) -> None:
    """Two equal quantizers of one tensor, a layer in FP16 behind both."""
    text = """<ir_version: 8, opset_import: ["" : 14]> g (float[1,4,6,6] x) => (float[1,4,6,6] y) <float s = {0.02}, int8 z = {0}> {
        r = Relu (x) q = QuantizeLinear (r, s, z) d = DequantizeLinear (q, s, z)
        p = QuantizeLinear (r, s, z) e = DequantizeLinear (p, s, z) a = Sin (d) b = Cos (e) y = Add (a, b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).normal(0, 4, (8, 4, 6, 6)).astype(np.float32))
    files = translate(str(tmp_path / "m.onnx"), TranslateOptions(preset=preset)).save(tmp_path)
    assert [n.op_type for n in onnx.load(files.model).graph.node].count("Clip") == 1
    found = verify(Options(model=str(tmp_path / "m.onnx"), data=str(tmp_path / "d.npz"), translation=str(tmp_path)))
    assert found["verdict"]["overall"] == "within expected rounding", found["verdict"]


@pytest.mark.parametrize("zero", ["int8 z = {0}", "uint8 z = {128}"])
def test_a_small_rest_behind_weights_of_128_steps_is_no_other_function(zero: str) -> None:
    """W1: weights of -128 steps become -127, and `y`, two of their steps, one."""
    kind, codes = zero.split()[0], "0, 254" if "128" in zero else "-128, 126"
    text = f"""<ir_version: 8, opset_import: ["" : 13]> g (float[1,1,6,6] x) => (float[1,1,6,6] y)
        <float s = {{0.02}}, int8 n = {{0}}, {zero}, {kind}[1,2,1,1] c = {{{codes}}}> {{
        q = QuantizeLinear (x, s, n) d = DequantizeLinear (q, s, n) w = DequantizeLinear (c, s, z)
        e = Concat <axis = 1> (d, d) y = Conv (e, w) }}"""
    made = translate(onnx.parser.parse_model(text), TranslateOptions())
    assert [d.data["saturated"] for d in made.diagnostics if d.rule == "W1" and d.data.get("saturated")]
    assert not [d for d in made.diagnostics if d.rule == "V1"]


def test_on_a_dla_only_bounds_that_data_reach_stay(tmp_path: Path) -> None:
    """Q9: a two-sided Clip is several layers of the DLA; without data it stays, with data if they reach it."""
    text = """g (float[1,8,6,6] x) => (float[1,8,6,6] y)
        <float s = {0.02}, uint8 z = {100}, float t = {0.02}, uint8 u = {90}, float ws = {0.004}, int8 w0 = {0}> {
        q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) w = DequantizeLinear (wq, ws, w0) c = Conv (d, w)
        p = QuantizeLinear (c, t, u) e = DequantizeLinear (p, t, u) v = DequantizeLinear (vq, ws, w0) y = Conv (e, v) }"""
    random = np.random.default_rng(0)
    codes = {name: random.integers(-127, 128, (8, 8, 1, 1)).astype(np.int8) for name in ("wq", "vq")}
    onnx.save(model(text, 14, **codes), tmp_path / "m.onnx")
    counts = {}
    for name, deviation in (("within", 0.4), ("beyond", 4.0)):
        np.savez(tmp_path / f"{name}.npz", x=random.normal(0, deviation, (8, 8, 6, 6)).astype(np.float32))
        options = TranslateOptions(preset="dla", calibrate=str(tmp_path / f"{name}.npz"), dla_rewrites="off")
        made = translate(str(tmp_path / "m.onnx"), options)
        counts[name] = [node.op_type for node in made.graph.nodes].count("Clip")
        assert any("idle" in d.data for d in made.diagnostics) == (name == "within")
        files = made.save(tmp_path / name)
        asked = {"data": str(tmp_path / f"{name}.npz"), "translation": str(files.folder)}
        assert (
            verify(Options(model=str(tmp_path / "m.onnx"), **asked))["verdict"]["overall"] == "within expected rounding"
        )
    plain = translate(str(tmp_path / "m.onnx"), TranslateOptions(preset="dla", dla_rewrites="off"))
    counts["no data"] = [node.op_type for node in plain.graph.nodes].count("Clip")
    assert counts == {"within": 0, "beyond": 2, "no data": 2}


@pytest.mark.parametrize("command", ["explicit", "restore"])
def test_networks_with_pairs_are_run_too(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """V1: pairs that cut most weights are an error, and nothing is written."""
    explicit, _ = quantized(2, tmp_path, extra_options=SYMMETRIC, activation_type=quantization.QuantType.QInt8)
    files = translate(explicit, TranslateOptions(preset="gpu"), name="m").save(tmp_path / "t")
    onnx.save(explicit, tmp_path / "m.onnx")
    out = tmp_path / "out.onnx"
    asked = ["explicit", str(tmp_path / "m.onnx"), "-o", str(out), "--float_type", "fp32"]
    if command == "restore":
        asked = ["explicit", str(files.model), "-c", str(files.cache), "--for", "onnxruntime", "-o", str(out)]
    assert main(asked) == 0
    out.unlink()
    scales, trained = pairs.weight_scales, qdq_explicit._trained_scales
    monkeypatch.setattr(qdq_restore, "weight_scales", lambda *args: scales(*args) / np.float32(8))
    monkeypatch.setattr(qdq_explicit, "_trained_scales", lambda *args: trained(*args) / np.float32(8))
    assert main(asked) == 1 and not out.exists()


@pytest.mark.parametrize(("scale", "same"), [(1.0, True), (1.2, False)])
def test_a_small_rest_of_a_large_sum_is_not_its_rounding(scale: float, same: bool) -> None:
    """Weights that cancel each other: their rounding to INT8 alone moves the output by more than its own energy. A wrong
    step is another function."""
    weights = np.random.default_rng(0).normal(0, 1, (512, 1)).astype(np.float32)
    weights[-1] -= weights.sum()
    step = np.abs(weights).max() / 127
    body = "g = Mul (x, little)\ns = Sigmoid (g)\ny = Gemm (s, w)"
    rounded = {"q": np.round(weights / step).astype(np.int8), "step": np.float32(step * scale)}
    sides = []
    for text, values in ((body, {"w": weights}), (f"w = DequantizeLinear (q, step)\n{body}", rounded)):
        network = f"g (float[1,512] x) => (float[1,1] y) {{ {text} }}"
        sides.append(Graph.from_model(model(network, 14, little=np.float32(1e-3), **values)))
    assert difference(*sides, {}, 20.0) is not None
    if same:
        OnnxRuntime().check_pairs(*sides, {}, Diagnostics())
    else:
        with pytest.raises(UserError, match=r"tensor that differs is 'y' \(rule V1\)"):
            OnnxRuntime().check_pairs(*sides, {}, Diagnostics())
