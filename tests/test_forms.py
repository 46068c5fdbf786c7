"""Forms that real networks have, and models that cannot be: each a translation, or one true sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.verify import Options
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.rows import plain
from qdq_translator.lab.simulate.compare import matched_rows
from qdq_translator.lab.simulate.inputs import InputSpec, Samples, load_samples
from qdq_translator.lab.simulate.thresholds import SAME_DB
from qdq_translator.lab.simulate.verdict import other_function
from qdq_translator.lab.verification import verify
from qdq_translator.translation.ir.graph import Graph
from tests.explicit_reference import run
from tests.small_models import model

S = {"s": np.float32(0.1), "z": np.int8(0), "so": np.float32(0.05)}
WEIGHT = {"wq": np.arange(-8, 8, dtype=np.int8).reshape(4, 4, 1, 1) * 8, "ws": np.float32(0.01)}


def saved(path: Path, text: str, opset: int = 17, **initializers: Any) -> Path:
    onnx.save(model(text, opset=opset, **initializers) if opset != 17 else model(text, **initializers), path)
    return path


def planned(path: Path, *more: str) -> int:
    return main(["plan", "-i", str(path), *more])


# ---------------- natively INT8 networks


@pytest.mark.parametrize("kind", ["int8", "float"])
@pytest.mark.parametrize(
    "steps, shape",
    [("", (1, 4, 3, 3)), ("r = Reshape(x, shape)", (1, 4, 9)), ("r = Transpose<perm=[0, 3, 1, 2]>(x)", (1, 3, 3, 4))],
)
def test_quantized_inputs_take_quantized_and_real_data(kind: str, steps: str, shape: Any, tmp_path: Path) -> None:
    read, zero = "r" if steps else "x", np.int8(3)
    text = f"""g (int8[{",".join(map(str, shape))}] x) => (float[1,4,3,3] y) {{ {steps}
        f = DequantizeLinear({read}, s, zi) w = DequantizeLinear(wq, ws, z) c = Conv(f, w)
        q = QuantizeLinear(c, so, z) y = DequantizeLinear(q, so, z) }}"""
    path = saved(tmp_path / "m.onnx", text, shape=np.array([1, 4, 3, 3]), zi=zero, **S, **WEIGHT)
    codes = np.random.default_rng(0).integers(-90, 90, (6, *shape[1:])).astype(np.int8)
    values = codes if kind == "int8" else (codes - np.float32(zero)) * np.float32(0.1)
    np.savez(tmp_path / "x.npz", x=values)
    files = translate(path, TranslateOptions(asymmetric="widen")).save(tmp_path / "t")
    found = verify(Options(model=str(path), translation=str(files.folder), data=str(tmp_path / "x.npz")))
    assert found["inputs"]["samples"] == 6 and found["outputs"]["pairs"][0]["outputs"]["y"]["sqnr_db"] > 30


def test_a_quantized_output_behind_a_reshape(tmp_path: Path) -> None:
    text = """g (float[1,4,3,3] x) => (int8[1,36] y) {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) a = Relu(d)
        p = QuantizeLinear(a, s, z) y = Reshape(p, shape) }"""
    path = saved(tmp_path / "m.onnx", text, shape=np.array([1, 36]), **S)
    files = translate(path, TranslateOptions()).save(tmp_path / "t")
    found = verify(Options(model=str(path), translation=str(files.folder)))
    assert found["verdict"]["overall"] == "equal"


def test_a_tensorflow_lite_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.bin").write_bytes(b"\x1c\0\0\0TFL3" + bytes(40))
    (tmp_path / "net.tflite").write_bytes(b"")
    for name in ("net.bin", "net.tflite"):
        assert planned(tmp_path / name) == 1
        said = capsys.readouterr().err
        assert "TensorFlow Lite" in said and f"tf2onnx.convert --opset 17 --tflite {tmp_path / name}" in said


# ---------------- the ends of a network


def test_a_graph_input_that_is_an_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """g (float[1,4,3,3] x) => (float[1,4,3,3] y, float[1,4,3,3] x) {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) w = DequantizeLinear(wq, ws, z) c = Conv(d, w)
        p = QuantizeLinear(c, so, z) e = DequantizeLinear(p, so, z) y = Relu(e) }"""
    path = saved(tmp_path / "m.onnx", text, **S, **WEIGHT)
    assert main(["explicit", "-i", str(path), "-o", str(tmp_path / "e")]) == 0
    files = translate(path, TranslateOptions()).save(tmp_path / "t")
    out = tmp_path / "restored.onnx"
    asked = ["explicit", str(files.model), "-c", str(files.cache), "--for", "onnxruntime", "-o", str(out)]
    assert main(asked) == 0, capsys.readouterr().err
    for written in (next((tmp_path / "e").glob("*.onnx")), out):
        ends = onnx.load(written).graph
        assert [v.name for v in ends.input] == ["x"] and [v.name for v in ends.output] == ["y", "x"]
        assert not any("x" in node.output for node in ends.node)


STREAM = """g (int8[1,2,4] x, int8[1,3,4] state) => (float[1,2,3] y, int8[1,3,4] next) {
    t = Concat<axis = 1>(state, x) next = Slice(t, two, five, one) d = DequantizeLinear(t, s, z)
    w = Slice(d, three, five, one) p = DequantizeLinear(wq, ws, z8) m = MatMul(w, p)
    q = QuantizeLinear(m, so, z) y = DequantizeLinear(q, so, z) }"""
STREAMED = {
    "s": np.float32(0.1),
    "z": np.int8(-5),
    "z8": np.int8(0),
    "so": np.float32(0.3),
    "wq": np.arange(-6, 6, dtype=np.int8).reshape(4, 3) * 9,
    "ws": np.float32(0.01),
    **{name: np.array([at], np.int64) for name, at in (("one", 1), ("two", 2), ("three", 3), ("five", 5))},
}


def test_quantized_states_of_a_stream(tmp_path: Path) -> None:
    """As tf2onnx writes a streaming network: inputs behind a Concat, an output that is only moved, zero points."""
    path = saved(tmp_path / "m.onnx", STREAM, **STREAMED)
    codes = {
        name: np.arange(-24, 24, dtype=np.int8)[: 4 * n * 4].reshape(-1, n, 4) for name, n in (("x", 2), ("state", 3))
    }
    real = {name: (values + np.float32(5)) * np.float32(0.1) for name, values in codes.items()}
    made = []
    for name, values in (("codes", codes), ("real", real)):
        np.savez(tmp_path / f"{name}.npz", **values)
        data = str(tmp_path / f"{name}.npz")
        made.append(translate(path, TranslateOptions(preset="gpu", calibrate=data)))
        files = made[-1].save(tmp_path / name)
        found = verify(Options(model=str(path), data=data, translation=str(files.folder)))
        assert found["verdict"]["overall"] in ("equal", "within expected rounding")
    assert made[0].tensor_scales == made[1].tensor_scales


def test_lists_of_different_lengths_are_compared(tmp_path: Path) -> None:
    """What NonZero leaves depends on the last bit: a note, no error."""
    text = """g (float[1,64] x) => (float[n,1] y) {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) w = DequantizeLinear(wq, ws, z) c = MatMul(d, w)
        p = QuantizeLinear(c, so, z) e = DequantizeLinear(p, so, z) r = Tanh(e) g = Greater(r, half) f = Reshape(r, k)
        i = NonZero(g) u = Gather(i, one) y = Gather(f, u) }"""
    random = np.random.default_rng(0)
    weights = {"wq": random.integers(-9, 9, (64, 64)).astype(np.int8), "half": np.float32(0.3)}
    more = {"k": np.array([64, 1]), "one": np.int64(1)}
    path = saved(tmp_path / "m.onnx", text, **{**S, "so": np.float32(0.02)}, ws=np.float32(0.02), **weights, **more)
    np.savez(tmp_path / "d.npz", x=random.normal(0, 2, (8, 64)).astype(np.float32))
    files = translate(path, TranslateOptions(preset="gpu")).save(tmp_path)
    found = verify(Options(model=str(path), data=str(tmp_path / "d.npz"), translation=str(files.folder)))
    assert any("each row is compared with the nearest" in note for note in found["notes"])
    a, b = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([[4.2, 5], [0, 1]], np.float32)
    assert matched_rows(a, b).tolist() == [[0, 1], [0, 1], b[0].tolist()]
    assert matched_rows(a, b[:0]).tolist() == np.zeros_like(a).tolist() and matched_rows(a, a[::-1]) is not a


def test_samples_whose_first_axes_are_no_samples(tmp_path: Path) -> None:
    """An LSTM with its initial state, and a rate that is one number."""
    f32 = np.dtype(np.float32)
    specs = [InputSpec("x", (None, 5), f32), InputSpec("h", (2, 1, 3), f32), InputSpec("rate", (), np.dtype(np.int64))]
    x, h = np.arange(20, dtype=np.float32).reshape(4, 5), np.arange(24, dtype=np.float32).reshape(4, 2, 1, 3)
    for states in (h, h.reshape(8, 1, 3)):
        np.savez(tmp_path / "d.npz", x=x, h=states, rate=np.int64(16000))
        samples = load_samples(tmp_path / "d.npz", specs, None)
        assert samples.runs == 4
        feed = samples.feed(2)
        assert np.array_equal(feed["x"], x[2:3]) and np.array_equal(feed["h"], h[2]) and feed["rate"] == 16000
    np.savez(tmp_path / "d.npz", x=x, h=h[0], rate=np.int64(16000))  # one state for all
    assert np.array_equal(load_samples(tmp_path / "d.npz", specs, 3).feed(2)["h"], h[0])
    one = [InputSpec("h", (2, 1, 3), f32)]  # its first axis looks like a batch
    np.savez(tmp_path / "d.npz", h=h)
    assert np.array_equal(load_samples(tmp_path / "d.npz", one, None).feed(3)["h"], h[3])
    np.savez(tmp_path / "d.npz", x=x, h=h[:3], rate=np.int64(16000))
    with pytest.raises(UserError, match="different numbers of samples"):
        load_samples(tmp_path / "d.npz", specs, None)


# ---------------- shapes that cannot be


IMPOSSIBLE = {
    "Reshape": "(float[1,7] x) => (float[2,4] y) <int64[2] k = {2, 4}> { y = Reshape(x, k) }",
    "Reshape of a rest": "(float[1,7] x) => (float[a,4] y) <int64[2] k = {-1, 4}> { y = Reshape(x, k) }",
    "DepthToSpace": "(float[1,6,4,4] x) => (float[1,1,8,8] y) { y = DepthToSpace<blocksize=2>(x) }",
    "SpaceToDepth": "(float[1,6,5,4] x) => (float[1,24,2,2] y) { y = SpaceToDepth<blocksize=2>(x) }",
    "Concat": "(float[1,6,5,4] x, float[1,6,5,3] z) => (float[1,12,5,4] y) { y = Concat<axis=1>(x, z) }",
    "MatMul": "(float[1,6] x, float[5,3] z) => (float[1,3] y) { y = MatMul(x, z) }",
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_layers_that_cannot_have_their_input(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "m.onnx", f"g {IMPOSSIBLE[name]}")
    assert planned(path) == 1
    said = capsys.readouterr()
    assert (
        f"{name.split()[0]} of 'y'" in said.err and "cannot have" in said.err and "bug" not in said.err and not said.out
    )


def test_a_plan_around_an_unknown_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("MyOp", ["c"], ["d"], "custom", domain="my"),
        helper.make_node("Conv", ["d", "w"], ["y"], "conv2"),
    ]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 4, 8, 8]) for n in "xy"]
    weight = onnx.numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    assert planned(tmp_path / "m.onnx") == 0
    said = capsys.readouterr().out
    assert "no estimate: the shapes behind MyOp 'custom' are not known" in said
    assert "dynamic" not in said and "()" not in said


# ---------------- JSON, scalars, Resize


def test_json_has_no_infinite_numbers(tmp_path: Path) -> None:
    assert plain({"a": [float("inf"), 1.5, {"b": np.float64("nan")}]}) == {"a": [None, 1.5, {"b": None}]}


def test_an_exact_rewrite_is_json(tmp_path: Path) -> None:
    text = """g (float[1,3,8,8] x) => (float[1,4,9,9] y) {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) p = Pad(d, pads) y = Conv<pads=[1,1,1,1]>(p, w) }"""
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    path = saved(tmp_path / "m.onnx", text, pads=np.array([0, 0, 1, 1, 0, 0, 0, 0]), w=weight, **S)
    files = translate(path, TranslateOptions(preset="dla")).save(tmp_path / "t")
    for file in (files.report, files.config):
        json.loads(file.read_text(), parse_constant=lambda word: pytest.fail(word))


def test_the_last_bit_of_a_factor_is_no_other_network() -> None:
    """The factors of a Resize, computed or not, keep their bits: 2 less one step makes 15 of 16 rows."""
    text = """g (float[1,2,8,8] x) => (float[1,2,a,b] y) {
        f = Mul(half, four) r = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">
        (x, , f) y = Mul(r, k) }"""
    values = {"half": np.array([1, 1, 0.5, 0.5], np.float32), "four": np.array([1, 1, 4, 4], np.float32)}
    given, other = (Graph.from_model(model(text, k=np.float32(k), **values)) for k in (1.0, 1.1))
    x = np.random.default_rng(0).normal(size=(1, 2, 8, 8)).astype(np.float32)
    found = other_function(given, other, Samples(1, 1, "normal", lambda run: {"x": x}), SAME_DB)
    assert found["y"] == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize("batch", ["1", "N"])
def test_the_batch_that_a_reshape_needs(batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"g (float[{batch},3,8,8] x) => (float[a,b] y) <int64[2] k = {{4, -1}}> {{ c = Conv(x, w) s = Squeeze(c) y = Reshape(s, k) }}"
    path = saved(tmp_path / "m.onnx", text, w=np.ones((7, 3, 8, 8), np.float32))
    assert planned(path) == 1
    assert "With a batch of 4 they would fit: give such sizes with --shapes x:4x..." in capsys.readouterr().err
    if batch == "N":
        assert planned(path, "--shapes", "x:4x3x8x8") == 0


def branches() -> onnx.ModelProto:
    """An If that a rate selects; the branches use the same names, and a tensor from outside."""

    def body(name: str, factor: float) -> onnx.GraphProto:
        weight = onnx.numpy_helper.from_array(np.full((4, 4, 1, 1), factor, np.float32), "w")
        nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv"), helper.make_node("Relu", ["c"], ["r"], "relu")]
        nodes.append(helper.make_node("Identity", ["x"], ["i"], "outer"))
        ends = [onnx.ValueInfoProto(name=n) for n in ("r", "c" if name == "a" else "i")]
        return helper.make_graph(nodes, name, [], ends, [weight])

    nodes = [
        helper.make_node("Equal", ["rate", "wanted"], ["same"], "equal"),
        helper.make_node("If", ["same"], ["y", "z"], "choice", then_branch=body("a", 1.0), else_branch=body("b", -1.0)),
    ]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 4, 8, 8]) for n in "xyz"]
    rate = helper.make_tensor_value_info("rate", onnx.TensorProto.INT64, [])
    wanted = onnx.numpy_helper.from_array(np.int64(16000), "wanted")
    graph = helper.make_graph(nodes, "g", [ends[0], rate], ends[1:], [wanted])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_an_input_that_selects_a_branch_is_fixed(rate: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(branches(), path)
    assert planned(path) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 layers with weights inside If 'choice' are not planned" in said and "--shapes rate=VALUE" in said
    assert planned(path, "--shapes", f"rate={rate}") == 0
    assert "unknown" not in capsys.readouterr().out
    x = np.random.default_rng(0).normal(size=(8, 4, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    data = str(tmp_path / "x.npz")
    made = translate(path, TranslateOptions(calibrate=data, shapes=[f"rate={rate}"], preset="gpu"))
    assert [v.name for v in made.model.graph.input] == ["x"] and not made.graph.of("If")
    feed = {"x": x[:1]}
    wanted = run(branches(), {**feed, "rate": np.array(rate)})
    for one, other in zip(run(made.model, feed), wanted):
        np.testing.assert_allclose(one, other, atol=1e-5)
    files = made.save(tmp_path / "t")
    found = verify(Options(model=str(path), translation=str(files.folder), data=data))
    assert found["verdict"]["overall"] in ("equal", "within expected rounding")


def test_fixed_inputs_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(branches(), path)
    for words, said in (
        (["sr=16000"], "names no graph input"),
        (["rate:16000"], "--shapes rate=16000"),
        (["x:2x4x8x8"], "export the model again with these sizes"),
    ):
        assert planned(path, "--shapes", *words) == 1
        assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("scale, axis", [((), None), ((6,), 1), ((8, 1), 0)])
@pytest.mark.parametrize("swapped", [False, True])
def test_weights_that_are_only_stored_in_int8(scale: Any, axis: Any, swapped: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    product = "Mul(s, f)" if swapped else "Mul(f, s)"
    text = f"g (float[1,5,8] x) => (float[1,5,6] y) {{ f = Cast<to=1>(w) v = {product} y = MatMul(x, v) }}"
    values = {
        "w": rng.integers(-127, 128, (8, 6)).astype(np.int8),
        "s": rng.uniform(0.01, 0.02, scale).astype(np.float32),
    }
    path = saved(tmp_path / "m.onnx", text, **values)
    x = rng.normal(size=(8, 5, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    assert len(translate(path).weights) == 1  # recognised without data
    made = translate(path, TranslateOptions(calibrate=str(tmp_path / "x.npz")))
    assert len(made.weights) == 1 and not made.graph.of("Cast")
    feed = {"x": x[:1]}
    np.testing.assert_allclose(run(made.model, feed)[0], run(onnx.load(path), feed)[0], rtol=1e-5, atol=1e-5)


def test_a_pair_behind_a_node_whose_type_cannot_be_inferred(tmp_path: Path) -> None:
    text = """g (float[1,3,8,8] x) => (float[1,3,8,8] y) { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        c = Conv(d, w) p = QuantizeLinear(c, s, z) y = DequantizeLinear(p, s, z) }"""
    path, out = saved(tmp_path / "m.onnx", text, w=np.float32(0.5), **S), tmp_path / "e.onnx"
    assert main(["explicit", str(path), "-o", str(out)]) == 0
    assert [node.op_type for node in onnx.load(out).graph.node].count("QuantizeLinear") == 2
