"""What campaigns have found (`python -m tests.fuzz`), each as its smallest model: refused in a sentence, or translated."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.core.errors import ModelError, UnsupportedQuantizer, UserError
from tests.fuzz.campaign import OPTIONS
from tests.fuzz.mutate import seeds
from tests.small_models import model, pair

FLAT = "net (float[1,8] x) => (float[a,b] y) <int8 z = {0}, float s = {0.5}>"
IMAGE = "net (float[1,4,8,8] x) => (float[a,b,c,d] y) <int8 z = {0}, float s = {0.5}>"
DLA = {"target": "orin-dla", "platform": "jetpack-6.2", "dla_rewrites": True}


def flat(lines: str, opset: int = 17, **arrays: np.ndarray) -> onnx.ModelProto:
    return model(f"{FLAT} {{ {lines} }}", opset, **arrays)


def image(lines: str, opset: int = 17, **arrays: np.ndarray) -> onnx.ModelProto:
    return model(f"{IMAGE} {{ {lines} }}", opset, **arrays)


def plain() -> onnx.ModelProto:
    return flat(f"{pair('x', 'a')} y = Relu(a)")


def opset(version: int) -> onnx.ModelProto:
    made = plain()
    made.opset_import[0].version = version
    return made


def attribute(made: onnx.ModelProto, key: str, value: Any) -> onnx.ModelProto:
    made.graph.node[-1].attribute.append(helper.make_attribute(key, value))
    return made


def microsoft(made: onnx.ModelProto) -> onnx.ModelProto:
    """With ONNX Runtime's own DequantizeLinear at the end, whose attributes ONNX does not check."""
    made.graph.node[-1].domain = "com.microsoft"
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def conv(rank: int, **more: Any) -> onnx.ModelProto:
    """A Conv whose weight has another rank than its input."""
    made = image(f"{pair('x', 'a')} {pair('f', 'w')} y = Conv(a, w)", f=np.ones((4, 4, *(3,) * (rank - 2)), np.float32))
    for key, value in more.items():
        attribute(made, key, value)
    return made


BETWEEN = "q = QuantizeLinear(x, s, z) p = {} b = DequantizeLinear(p, s, z) y = Relu(b)"
REFUSED: dict[str, Callable[[], onnx.ModelProto]] = {
    "no inputs, in an opset before the operator": lambda: flat(f"{pair('x', 'a')} b = Expand() y = Add(a, b)", 7),
    "no scales": lambda: flat(f"{pair('x', 'a', 'none')} y = Relu(a)", none=np.zeros(0, np.float32)),
    "booleans before a quantizer": lambda: flat(
        f"{pair('x', 'a')} {pair('k', 'w')} y = MatMul(a, w)", k=np.ones((8, 8), np.bool_)
    ),
    "padding with infinity": lambda: flat(
        BETWEEN.format("Pad(q, n, k)"), n=np.array([0, 1, 0, 1]), k=np.float32(np.inf)
    ),
    "padding with what is no number": lambda: flat(
        BETWEEN.format("Pad(q, n, k)"), n=np.array([0, 1, 0, 1]), k=np.float32(np.nan)
    ),
    "padding with nothing": lambda: flat(
        BETWEEN.format("Pad(q, n, k)"), n=np.array([0, 1, 0, 1]), k=np.zeros(0, np.int8)
    ),
    "an opset beyond 32 bits": lambda: opset(2**40),
    "an opset below 1": lambda: opset(-1),
    "an attribute of another type, of an operator that the opset does not have yet": lambda: attribute(
        flat("y = DequantizeLinear(k, t)", opset=1, k=np.ones((8, 8), np.int8), t=np.ones(8, np.float32)), "axis", [1]
    ),
    "an attribute of another type than in any version": lambda: attribute(
        image(f"{pair('x', 'a')} y = ReduceMean(a)", 18), "axes", 7
    ),
    "a quantizer with two outputs": lambda: flat(
        "q, more = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) y = Relu(a)"
    ),
    "a Relu with two outputs": lambda: flat(f"{pair('x', 'a')} y, more = Relu(a)"),
}
DECIDED: dict[str, Callable[[], onnx.ModelProto]] = {
    "a Slice behind a Pad that has the attribute of a window": lambda: image(
        f"{pair('x', 'a')} p = Pad(a, n) y = Slice <pads = 0.0> (p, k, k)",
        n=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        k=np.ones((4, 4, 3, 3), np.float32),
    ),
    "a Resize whose factors are a column": lambda: image(
        f'{pair("x", "a")} r = Resize <mode = "cubic"> (a, , f) y = Relu(r)',
        f=np.array([[1], [1], [2], [2]], np.float32),
    ),
    "codes that were cast": lambda: flat(
        f"{pair('x', 'a')} c = Cast <to = 2> (k) w = DequantizeLinear(c, s, z) y = MatMul(a, w)",
        k=np.ones((8, 8), np.int8),
    ),
    "weights without channels": lambda: flat(
        f"{pair('x', 'a')} {pair('f', 'w')} y = MatMul(a, w)", f=np.zeros((8, 0), np.float32)
    ),
    "a type that does not exist": lambda: flat(
        f"{pair('x', 'a')} c = Cast <to = 99> (k) y = Mul(a, c)", k=np.float32(1)
    ),
    "scales of a Resize in two dimensions": lambda: image(
        f"{pair('x', 'a')} y = Resize(a, , k)", k=np.ones((2, 2), np.float32)
    ),
    "a Slice with more starts than ends": lambda: image(
        f"{pair('x', 'a')} c = Conv(a, w) y = Slice(c, one, none, one)",
        w=np.ones((4, 4, 1, 1), np.float32),
        one=np.array([1]),
        none=np.zeros(0, np.int64),
    ),
    "a Conv in one dimension of an image": lambda: conv(3),
    "a Conv in three dimensions of an image": lambda: conv(5),
    "a Conv with padding for another rank": lambda: conv(5, pads=[1, 1, 2, 2]),
    "a Pad before a Conv whose weights have no kernel": lambda: image(
        f"{pair('x', 'a')} p = Pad(a, n) y = Conv(p, k)",
        n=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        k=np.ones(4, np.float32),
    ),
    "a Transpose with an axis too many before a Reshape": lambda: image(
        f"{pair('x', 'a')} t = Transpose <perm = [0, 2, 3, 1, -1]> (a) r = Reshape(t, n) y = HardSwish(r)",
        n=np.array([1, 8, 8, 4]),
    ),
    "a Conv with one entry in its kernel": lambda: conv(4, kernel_shape=[3]),
    "a Conv with a bias of no dimension before a Split": lambda: image(
        f"{pair('x', 'a')} c = Conv(a, w, k) d, e = Split <axis = 1> (c) y = Relu(d)",
        opset=13,
        w=np.ones((4, 4, 1, 1), np.float32),
        k=np.float32(1),
    ),
    "a graph output of one dimension behind a Conv": lambda: model(
        f"net (float[1,4,8,8] x) => (float[255] y) <int8 z = {{0}}, float s = {{0.5}}> {{ {pair('x', 'a')} y = Conv(a, w) }}",
        w=np.ones((4, 4, 1, 1), np.float32),
    ),
    "axes that are infinite": lambda: image(
        f"{pair('x', 'a')} y = ReduceMean(a, k)", 18, k=np.array([np.inf], np.float32)
    ),
    "a size of an open shape, picked by a scalar": lambda: model(
        f"net (float[n,4,8,8] x) => (float[a,b,c,d] y) <int8 z = {{0}}, float s = {{0.5}}> {{ {pair('x', 'a')} h = Shape(a) "
        "g = Gather(h, two) u = Unsqueeze(g, zero) m = Slice(a, zero, u, two_at) y = Relu(m) }",
        two=np.array(2),
        two_at=np.array([2]),
        zero=np.array([0]),
    ),
    "a size below 0 before shape arithmetic": lambda: model(
        f"net (float[1,-9,8,8] x) => (float[a,b,c,d] y) <int8 z = {{0}}, float s = {{0.5}}> {{ {pair('x', 'a')} h = Shape(a) "
        "g = Gather(h, one) n = Div(g, two) m = Slice(a, zero, n, one) y = Relu(m) }",
        one=np.array([1]),
        two=np.array([2]),
        zero=np.array([0]),
    ),
    "a Slice of what a kernel larger than its input makes": lambda: image(
        f"{pair('x', 'a')} c = Conv(a, w) y = Slice(c, zero, one, axis)",
        w=np.ones((4, 4, 11, 11), np.float32),
        zero=np.array([0]),
        one=np.array([1]),
        axis=np.array([2]),
    ),
    "a pool with padding over sizes below 0": lambda: image(
        f'{pair("x", "a")} r = Resize <mode = "nearest"> (a, , k) '
        "y = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (r)",
        k=np.array([1, 1, -2, -2], np.float32),
    ),
    "a constant that becomes a text": lambda: flat(
        f"{pair('x', 'a')} c = Cast <to = 8> (k) y = Add(a, c)", k=np.zeros(8, np.float32)
    ),
    "weights that are a graph output": lambda: model(
        f"net (float[1,8] x) => (float[a,b] y, float[8,8] w) <int8 z = {{0}}, float s = {{0.5}}> "
        f"{{ {pair('x', 'a')} {pair('f', 'w')} y = MatMul(a, w) }}",
        f=np.ones((8, 8), np.float32),
    ),
    "a block of -2^63": lambda: image(
        f"{pair('x', 'a')} d = DepthToSpace <blocksize = -9223372036854775808> (a) y = Relu(d)"
    ),
    "a block of 2^40": lambda: image(f"{pair('x', 'a')} d = SpaceToDepth <blocksize = 1099511627776> (a) y = Relu(d)"),
    "a window of size 0": lambda: image(f"{pair('x', 'a')} p = AveragePool <kernel_shape = [0, 16]> (a) y = Relu(p)"),
    "an axis of a quantizer that is a list": lambda: attribute(
        microsoft(flat(f"{pair('x', 'a')} y = MatMul(a, w) {pair('f', 'w')}", f=np.ones((8, 8), np.float32))),
        "axis",
        [1],
    ),
    "codes clipped to 2^80": lambda: flat(BETWEEN.format("Clip <min = 1208925819614629174706176.0> (q)"), opset=10),
    "codes clipped to infinity": lambda: flat(BETWEEN.format("Clip(q, k)"), k=np.array(np.inf, np.float32)),
    "a Softmax along an axis below all": lambda: image(f"{pair('x', 'a')} y = Softmax <axis = -9> (a)"),
    "a MatMul whose second input is left out": lambda: flat(f"{pair('x', 'a')} y = MatMul(a, )"),
    "an averaged image without channels": lambda: model(
        "net (float[1,0,1600000,1600000] x) => (float[a,b,c,d] y) <int8 z = {0}, float s = {0.5}> "
        f"{{ {pair('x', 'a')} y = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (a) }}"
    ),
    "a Pad that would overflow the padding of its Conv": lambda: image(
        f"{pair('x', 'a')} p = Pad(a, n) y = Conv <pads = [9223372036854775807, 0, 0, 0]> (p, k)",
        n=np.array([0, 0, 1, 0, 0, 0, 0, 0]),
        k=np.ones((4, 4, 1, 1), np.float32),
    ),
    "a limit of Clip that is none": lambda: flat(BETWEEN.format("Clip(q, k)"), k=np.zeros(0, np.int8)),
}


@pytest.mark.parametrize("options", [{}, {**DLA, "asymmetric": "widen"}], ids=["gpu", "dla"])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, options: dict[str, Any]) -> None:
    with pytest.raises((ModelError, UnsupportedQuantizer)):
        translate(REFUSED[case](), TranslateOptions(**options))


def test_outputs_of_an_older_version() -> None:
    """A BatchNormalization of opset 7 that was trained has five, and exporters leave four of them in later opsets."""
    four = np.ones(4, np.float32)
    made = image(f"{pair('x', 'a')} y, mean, var, saved_mean, saved_var = BatchNormalization(a, k, k, k, k)", k=four)
    assert translate(made).tensor_scales["x"] == np.float32(0.5)
    made.graph.node[-1].output.append("one_more")
    with pytest.raises(ModelError, match="has 6 outputs, and ONNX allows 5"):
        translate(made)


@pytest.mark.parametrize("target", ["gpu", "orin-dla", "xavier-dla"])
@pytest.mark.parametrize("case", DECIDED)
def test_decided(case: str, target: str) -> None:
    """What exactly is nobody's business, but it is a translation or a sentence."""
    try:
        translation = translate(DECIDED[case](), TranslateOptions(target=target, dla_rewrites=target != "gpu"))
    except UserError as error:
        assert str(error).endswith((".", ")"))
    else:
        assert "x" in translation.tensor_scales


@pytest.mark.parametrize(
    "name", ["name_of_a_node", "name_of_a_tensor", "name_of_graph", "name_of_a_constant", "name_of_a_size"]
)
def test_names_that_are_not_utf8(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plain()
    made.graph.name = "name_of_graph"
    made.graph.node[0].name = "name_of_a_node"
    made.graph.node[-1].input[0] = made.graph.node[1].output[0] = "name_of_a_tensor"
    made.graph.initializer.append(numpy_helper.from_array(np.float32(1), "name_of_a_constant"))
    made.graph.input.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, ["name_of_a_size"]))
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString().replace(name.encode(), b"\xff" + name[1:].encode()))
    assert main(["translate", "-i", str(path), "-o", str(tmp_path / "out")]) == 1
    assert "is not UTF-8" in capsys.readouterr().err
    with pytest.raises(ModelError, match="is not UTF-8"):
        translate(onnx.ModelProto.FromString(path.read_bytes()))


def test_sizes_that_the_file_calls_a_text() -> None:
    made = model(
        "net (float[1,4,8,8] x) => (float[a,b,c,d] y, string[n] h) <int8 z = {0}, float s = {0.5}, int64[1] one = {1}, "
        f"int64 two = {{2}}, int64[1] zero = {{0}}> {{ {pair('x', 'a')} h = Shape(a) g = Gather(h, one) n = Div(g, two) "
        f"m = Slice(a, zero, n, one) {pair('m', 'b')} y = Relu(b) }}",
        17,
    )
    assert set(translate(made).tensor_scales) >= {"x", "m"}


def test_a_graph_output_that_is_a_layers_second() -> None:
    made = model(
        "net (float[1,4,8,8] x) => (float[a,b,c,d] y, int64[a,b,c,d] i) <int8 z = {0}, float s = {0.5}> "
        f"{{ {pair('x', 'a')} y, i = MaxPool <kernel_shape = [2, 2]> (a) }}"
    )
    assert translate(made).tensor_scales["x"] == np.float32(0.5)


@pytest.mark.parametrize("version", [10, 11, 12, 13, 15, 18, 21])
def test_what_is_written_is_onnx_in_every_opset(version: int) -> None:
    """ONNX's checker takes what is made of each small model of the campaigns that it takes."""
    taken = 0
    for name, seed in seeds():
        made = onnx.ModelProto()
        made.CopyFrom(seed)
        next(entry for entry in made.opset_import if not entry.domain).version = version
        try:
            onnx.checker.check_model(made)
        except onnx.checker.ValidationError:
            continue
        for options in OPTIONS:
            try:
                translation = translate(made, TranslateOptions(**options))
            except UserError:
                continue
            onnx.checker.check_model(translation.model)
            assert translation.tensor_scales, name
            taken += 1
    assert taken >= 16
