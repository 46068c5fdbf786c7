"""Rule D29: normalizations by Pow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from qdq_translator import TranslateOptions, translate
from qdq_translator.translation.passes import pipeline
from qdq_translator.translation.passes.pipeline import PIPELINE
from tests.dla.check import BATCHES, both, case, covers, decibels, feed_of, graph, ints, pair, same, weights

X, Y = "float[{N},8,6,5] x", "float[b,c,h,w] y"
POW: dict[str, Any] = {"platform": "jetpack-6.2", "assume": "pow"}
FACTORS = {"g": np.linspace(0.5, 2, 8, dtype=np.float32), "h": np.linspace(-1, 1, 8, dtype=np.float32)}
WHOLE = {key: np.linspace(-1, 1, 240, dtype=np.float32).reshape(8, 6, 5) for key in "gh"}
EPSILON = {"eps": np.float32(1e-5)}
GROUPS = {"to": ints(0, 4, -1), "back": ints(0, 8, 6, 5), "o": np.ones(4, np.float32), "n": np.zeros(4, np.float32)}
TORCH = "r = Reshape (q, to)\ni = InstanceNormalization (r, o, n)\nu = Reshape (i, back)\nm = Mul (u, k)\ny = Relu (m)"


def norm(body: str, batch: str = "1", opset: int = 17, given: str = X, end: bool = True, **arrays: np.ndarray) -> Any:
    return graph(given, Y, pair("x", "q") + body + ("\ny = Relu (t)" if end else ""), batch, opset, **arrays)


def checked(batch: str, model: Any, least: float = 55, **more: Any) -> Any:
    """The same function on the DLA, in FP16 within its precision, and no tensor inside in INT8."""
    found = same(model, batch, relative=1e-5, **{**POW, **more})
    assert found.gpu()[1] == [] and found.rules.count("D29") == 1
    made = {
        name
        for a in found.rewritten.rewrites.applied
        for name in a.new
        if a.rule == "D29" and name[-4:] not in ("nchw", "nhwc")
    }
    assert made and made & found.rewritten.tensor_scales.keys() <= {"x"}
    assert decibels(found.rewritten, feed_of(found.rewritten, batch, 1), fp16=True) > least
    before, after = found.plain.costs, found.rewritten.costs
    assert (
        before is not None
        and after is not None
        and (batch == "N" or after.transitions < before.transitions or not before.ends)
    )
    return found


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("factors", [FACTORS, {"g": np.ones(8, np.float32), "h": np.zeros(8, np.float32)}])
def test_case_1(batch: str, factors: dict[str, np.ndarray]) -> None:
    found = checked(batch, norm("t = InstanceNormalization (q, g, h)", batch, **factors))
    assert found.ops.count("Pow") == 1 and found.ops.count("BatchNormalization") == 1 + (factors is FACTORS)


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("opset", "each"), [(18, 2), (21, 8)])
def test_case_2(batch: str, opset: int, each: int) -> None:
    factors = {key: values[:each] for key, values in FACTORS.items()}
    checked(batch, norm("t = GroupNormalization <num_groups = 2> (q, g, h)", batch, opset, **factors))


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_2_as_pytorch_exports_it(batch: str) -> None:
    found = checked(batch, norm(TORCH, batch, end=False, k=FACTORS["g"].reshape(8, 1, 1), **GROUPS))
    assert "Reshape" not in found.ops and found.ops.count("Conv") == 4


@covers(2)
def test_case_2_of_one_group() -> None:
    found = checked("1", norm("t = LayerNormalization <axis = 1> (q, g, h)", **WHOLE))
    assert found.ops[-3:] == ["Mul", "Add", "Relu"]


@covers(1)
def test_case_1_of_rows_and_columns() -> None:
    factors = {key: values[0] for key, values in WHOLE.items()}
    assert checked("1", norm("t = LayerNormalization <axis = 2> (q, g, h)", **factors)).ops[-3:] == [
        "Mul",
        "Add",
        "Relu",
    ]


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_3(batch: str) -> None:
    last = "l = Transpose <perm = [0, 2, 3, 1]> (q)\nn = LayerNormalization (l, g, h)\nt = Transpose <perm = [0, 3, 1, 2]> (n)"
    found = checked(batch, norm(last, batch, **FACTORS))
    assert found.ops == [
        "Conv",
        "Conv",
        "Sub",
        "Mul",
        "Conv",
        "BatchNormalization",
        "Pow",
        "Conv",
        "Mul",
        "BatchNormalization",
        "Relu",
    ]


@covers(3)
def test_case_3_between_products() -> None:
    """As in ConvNeXt and ViT: no Transpose is left, and the range of x is that of the Transpose's input."""
    body = "f = Reshape (q, to)\nl = Transpose <perm = [0, 2, 1]> (f)\nn = LayerNormalization (l, g)\n"
    body += "m = MatMul (n, w)\nu = Transpose <perm = [0, 2, 1]> (m)\nt = Reshape (u, back)"
    arrays = {"to": ints(0, 8, 30), "back": ints(0, 8, 6, 5), "w": np.eye(8, dtype=np.float32) / 4, "g": FACTORS["g"]}
    found = checked("1", norm(body, **arrays))
    assert not {"Transpose", "LayerNormalization"} & set(found.ops)


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axes", [[1], [3], [2, 3], [1, 2, 3]])
@pytest.mark.parametrize(
    ("root", "squares"),
    [
        ("r = Sqrt (e)\nt = Div (d, r)", "Pow (d, two)"),
        ("r = Sqrt (e)\ni = Reciprocal (r)\nt = Mul (d, i)", "Mul (d, d)"),
        ("r = Sqrt (e)\ni = Div (one, r)\nt = Mul (i, d)", "Pow (d, two)"),
        ("r = Pow (e, minus)\nt = Mul (r, d)", "Mul (d, d)"),
    ],
)
def test_case_4(batch: str, axes: list[int], root: str, squares: str) -> None:
    if batch != "1" and (axes, squares) != ([2, 3], "Pow (d, two)"):
        return
    body = f"a = ReduceMean <axes = {axes}> (q)\nd = Sub (q, a)\np = {squares}\nv = ReduceMean <axes = {axes}> (p)\n"
    numbers = {"two": np.float32(2), "one": np.float32(1), "minus": np.float32(-0.5)}
    used = {name: value for name, value in numbers.items() if name in root + squares}
    checked(batch, norm(f"{body}e = Add (v, eps)\n{root}", batch, **used, **EPSILON))


PARTS = """a = ReduceMean <axes = [-1]> (l)
d = Sub (l, a)
p = Pow (d, two)
v = ReduceMean <axes = [-1]> (p)
e = Add (v, eps)
r = Sqrt (e)
n = Div (d, r)
m = Mul (n, g)
o = Add (h, m)"""
ROOTED = "p = Mul (l, l)\nv = ReduceMean <axes = [-1]> (p)\ne = Add (v, eps)\nr = Sqrt (e)\nn = Div (l, r)\nm = Mul (n, g)\no = Add (m, h)"


def tokens(body: str, opset: int, batch: str = "1") -> Any:
    """A MatMul over the last of three axes, a normalization of 'l' to 'o', and another MatMul."""
    before = "f = Reshape (q, to)\nu = Transpose <perm = [0, 2, 1]> (f)\nk = MatMul (u, w)\nl = Add (k, u)\n"
    after = "\nj = MatMul (o, w)\nc = Add (j, l)\nb = Transpose <perm = [0, 2, 1]> (c)\nt = Reshape (b, back)"
    used = {**EPSILON, "two": np.float32(2), "minus": np.float32(-0.5)}
    arrays = {name: values for name, values in used.items() if name in body}
    shapes = {"to": ints(0, 8, 30), "back": ints(0, 8, 6, 5), "w": np.eye(8, dtype=np.float32) / 4}
    return norm(before + body + after, batch, opset, **shapes, **FACTORS, **arrays)


@pytest.fixture
def with_normal_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule F8 writes an RMSNormalization, which no parser has, in parts if it is not rewritten."""
    monkeypatch.setattr(pipeline, "PIPELINE", PIPELINE)


@covers(4)
@pytest.mark.usefixtures("with_normal_forms")
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("parts", "operator", "opset"),
    [(PARTS, "o = LayerNormalization (l, g, h)", 17), (ROOTED, "n = RMSNormalization (l, g)\no = Add (n, h)", 23)],
)
def test_case_4_of_three_dimensions(batch: str, parts: str, operator: str, opset: int) -> None:
    """As exporters write it below opset 17: what comes of it is what comes of the operator."""
    found = checked(batch, tokens(parts, 13, batch))
    whole = checked(batch, tokens(operator, opset, batch))
    scale = "BatchNormalization"  # the bias of an RMSNormalization is an Add of the network
    assert [op.replace("Add", scale) for op in whole.ops] == [op.replace("Add", scale) for op in found.ops]


@covers(4)
@pytest.mark.usefixtures("with_normal_forms")
def test_case_4_over_all_but_the_batch() -> None:
    assert checked("1", norm("t = RMSNormalization <axis = 1> (q, g)", opset=23, g=WHOLE["g"])).ops[-2:] == [
        "Mul",
        "Relu",
    ]


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ("r = Reshape (c, to)\ni = InstanceNormalization (r, o, n)\nu = Reshape (i, back)\nm = Mul (u, k)", 17),
        ("m = GroupNormalization <num_groups = 4> (c, g, h)", 21),
    ],
)
def test_case_2_of_one_dimension(batch: str, body: str, opset: int) -> None:
    text = f"c = Conv <pads = [1, 1]> (q, w)\n{body}\na = Relu (m)\ny = Conv <pads = [1, 1]> (a, w)"
    arrays = {**GROUPS, "back": ints(0, 8, 30), "k": FACTORS["g"].reshape(8, 1)} if "Reshape" in body else FACTORS
    kernel = {"w": weights(1, 8, 8, 3)}
    found = same(
        graph("float[{N},8,30] x", "float[b,c,l] y", pair("x", "q") + text, batch, opset, **kernel, **arrays),
        batch,
        **POW,
    )
    assert found.rules.count("D29") == 1 and set(found.gpu()[1]) == {"Reshape"}


GRN = "e = Add (n, eps)\nd = Div (m, e)\np = Mul (l, d)\nk = Mul (p, g)\nb = Add (k, h)\no = Add (b, l)\n"


@covers(5)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("last", [False, True])
def test_case_5_grn(batch: str, last: bool) -> None:
    """The global response normalization of ConvNeXt V2, over channels in their place or last, as its authors write it."""
    body = "l = Relu (q)\nm = ReduceL2 <axes = [2, 3]> (l)\nn = ReduceMean <axes = [1]> (m)\n" + GRN + "t = Relu (o)"
    factors = {name: values.reshape(8, 1, 1) for name, values in FACTORS.items()}
    if last:
        body = "u = Transpose <perm = [0, 2, 3, 1]> (q)\nl = MatMul (u, w)\nm = ReduceL2 <axes = [1, 2]> (l)\n"
        body += f"n = ReduceMean <axes = [-1]> (m)\n{GRN}c = MatMul (o, w)\nt = Transpose <perm = [0, 3, 1, 2]> (c)"
        factors = {**FACTORS, "w": np.eye(8, dtype=np.float32) / 4}
    found = checked(batch, norm(body, batch, eps=np.float32(1e-6), **factors))
    assert not {"Transpose", "MatMul"} & set(found.ops)


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_4_without_a_mean(batch: str) -> None:
    body = "p = Mul (q, q)\nv = ReduceMean <axes = [1]> (p)\ne = Add (eps, v)\nr = Sqrt (e)\nt = Div (q, r)"
    found = checked(batch, norm(body, batch, **EPSILON))
    assert found.ops == ["Mul", "Conv", "BatchNormalization", "Pow", "Conv", "Mul", "Relu"]


@covers(5)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axes", [[1], [2, 3], [3]])
def test_case_5(batch: str, axes: list[int]) -> None:
    found = checked(batch, norm(f"t = ReduceL2 <axes = {axes}> (q)", batch))
    assert found.ops == ["Mul", "Conv", "Pow", "BatchNormalization", "Relu"]


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize(("scale", "small"), [(2**2, 1), (1 / 32, 0), (2**-14, 1)])
@pytest.mark.parametrize("body", ["InstanceNormalization (q, g, h)", "LayerNormalization <axis = 1> (q, g, h)"])
def test_no_square_overflows_in_fp16(body: str, scale: float, small: int, offset: float) -> None:
    """Ranges of 508, 4 and 0.008: a power of two where the squares or epsilon would be beyond FP16; and zeros."""
    model = norm(f"t = {body}", **(WHOLE if "Layer" in body else FACTORS), s=np.float32(scale))
    found = both(model, **POW)
    names = [node.name for node in found.rewritten.graph.nodes]
    assert sum(name.endswith("_small") for name in names) == small
    reach = np.random.default_rng(1).uniform(-1, 1, (1, 8, 6, 5)) * 127 * scale
    assert decibels(found.rewritten, {"x": (reach * (1 - offset / 2)).astype(np.float32)}, fp16=True) > 50
    if scale <= 1:
        still = {"x": np.full((1, 8, 6, 5), 127 * scale * offset, np.float32)}
        assert decibels(found.rewritten, still, fp16=True) > 40  # no 0 / 0


IN, LN, SIZES = (
    "t = InstanceNormalization (q, g, h)",
    "t = LayerNormalization <axis = 1> (q, g, h)",
    "work over channels",
)


@pytest.mark.parametrize(("body", "why", "given", "options"), [
    case("without that word, or below TensorRT 10.3", IN, "--assume pow", X, {"assume": None}),
    pytest.param(IN, "--assume pow", X, {"platform": "jetpack-6.0"}, id="TensorRT 8.6"),
    case("other axes", "t = ReduceL2 <axes = [1, 2]> (q)", SIZES, X, {}),
    case("sizes that are not known", IN, SIZES, "float[1,8,h,5] x", {}),
    pytest.param(IN, SIZES, "float[1,8,6] x", {}, id="three dimensions"),
    case("`LpNormalization`, which has no epsilon", "t = LpNormalization <axis = 1> (q)", "epsilon", X, {}),
    case("a scale or bias that is computed", "u = Shrink (g)\n" + IN.replace(" g", " u"), "computed", X, {}),
    case("an epsilon that would be 0 in FP16 where no square overflows", LN.replace("= 1", "= 1, epsilon = 1e-12"), "epsilon", X, {}),
    case("more than 8192 channels", LN.replace(", g, h", ", e"), "8192 channels", "float[1,8193,1,2] x", {}),
])  # fmt: skip
def test_not(body: str, why: str, given: str, options: dict[str, Any]) -> None:
    factors = WHOLE if "LayerNormalization" in body else FACTORS
    arrays = {name: values for name, values in factors.items() if f" {name}" in body}
    if " e)" in body:
        arrays = {"e": np.ones((8193, 1, 2), np.float32)}
    if "u = Shrink" in body:
        body, arrays = "u = ReduceMax <axes = [0, 2, 3], keepdims = 0> (q)\n" + body.split("\n")[1], {"h": FACTORS["h"]}
    found = both(norm(body, given=given, **arrays), **{**POW, **options})
    assert "D29" not in found.rules
    assert any(why in row.why for row in found.rewritten.rewrites.left(found.rewritten.dla))


@covers("case 5 of values above 4080, whose squares overflow after a division by 16")
@pytest.mark.parametrize(("scale", "stays"), [(32, False), (33, True)])
def test_not_a_root_of_squares_that_overflow(scale: float, stays: bool) -> None:
    found = both(norm("t = ReduceL2 <axes = [2, 3]> (q)", s=np.float32(scale)), **POW)
    assert ("D29" not in found.rules) == stays
    assert [row.why for row in found.rewritten.rewrites.left(found.rewritten.dla)] == (
        ["its squares would overflow in FP16"] if stays else []
    )


@covers("parts that other layers read")
@pytest.mark.parametrize("read", ["d", "p", "v", "r"])
def test_not_parts_that_others_read(read: str) -> None:
    body = "d = Sub (q, a)\np = Mul (d, d)\nv = ReduceMean <axes = [1]> (p)\ne = Add (v, eps)\nr = Sqrt (e)\n"
    more = f"t0 = Div (d, r)\nf = Relu ({read})\nt = Mul (t0, f)"
    found = both(norm(f"a = ReduceMean <axes = [1]> (q)\n{body}{more}", **EPSILON), **POW)
    assert "D29" not in found.rules


@pytest.mark.parametrize(
    "tail",
    [
        "r = Sqrt (e)\nt = Div (r, q)",
        "r = Sqrt (e)\nt = Mul (q, r)",
        "r = Pow (e, two)\nt = Div (q, r)",
        "r = Sqrt (e)\nt = Sub (q, r)",
        "r = Sqrt (e)\no = Sub (one, r)\nt = Mul (q, o)",
    ],
)
def test_not_other_quotients(tail: str) -> None:
    body = f"p = Mul (q, q)\nv = ReduceMean <axes = [1]> (p)\ne = Add (v, eps)\n{tail}"
    used = {name: np.float32(value) for name, value in (("one", 1), ("two", 2)) if name in tail}
    assert "D29" not in both(norm(body, **EPSILON, **used), **POW).rules


BATCHED = {"to": ints(1, 4, -1), "back": ints(2, 8, 6, 5), "o": np.ones(4, np.float32), "n": np.zeros(4, np.float32)}


@pytest.mark.parametrize(("body", "arrays"), [
    ("p = Mul (q, q)\nv = ReduceMean <axes = [0, 2, 3]> (p)\ne = Add (v, eps)\nr = Sqrt (e)\nt = Div (q, r)", EPSILON),
    ("r = Reshape (q, to)\ni = InstanceNormalization (r, o, n)\nt = Reshape (i, back)", BATCHED),
    ("t = LayerNormalization <axis = 0> (q, g, h)", {key: np.ones((2, 8, 6, 5), np.float32) for key in "gh"}),
    ("t = InstanceNormalization <epsilon = -0.1> (q, g, h)", FACTORS),
    ("t = LayerNormalization <axis = 3> (q, g)", {"g": np.ones((6, 5), np.float32)}),
])  # fmt: skip
def test_not_across_samples_nor_with_unusable_operands(body: str, arrays: dict[str, np.ndarray]) -> None:
    assert "D29" not in both(norm(body, "2", **arrays), **POW).rules


def test_factors_without_a_bias_or_with_a_batch_axis() -> None:
    found = checked("1", norm("t = LayerNormalization <axis = 1> (q, g)", g=WHOLE["g"]))
    constants = {tensor.data_type for tensor in found.rewritten.model.graph.initializer}
    assert constants <= {TensorProto.FLOAT, TensorProto.INT64}
    checked("1", norm("t = LayerNormalization <axis = 1> (q, g, h)", **{k: v[None] for k, v in WHOLE.items()}))


def test_every_norm_names_the_option() -> None:
    """Without it."""
    body = "i = InstanceNormalization (q, g, h)\nl = ReduceL2 <axes = [1]> (i)\nr = Sqrt (l)\nt = Div (i, r)"
    made = translate(
        norm(body, **FACTORS), TranslateOptions(target="orin-dla", platform="jetpack-6.2", dla_rewrites=True)
    )
    left = {row.op: row.why for row in made.rewrites.left(made.dla)}
    assert all("--assume pow" in left[op] for op in ("InstanceNormalization", "ReduceL2", "Sqrt"))
