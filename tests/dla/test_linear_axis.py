"""Rule D23: what is linear along an axis becomes a 1x1 Conv with a constant matrix."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.translation.passes import dla
from qdq_translator.translation.passes.dla import linear_axis
from tests.dla.check import (
    BATCHES,
    ORIN,
    SCALE,
    both,
    case,
    covers,
    decibels,
    engine,
    feed_of,
    graph,
    ints,
    milliseconds,
    pair,
    same,
)
from tests.explicit_reference import run

RESIZE = "`Resize` with tf_crop_and_resize, antialias, named axes, an aspect ratio to keep or other axes than H and W, and below opset 11"
END = pair("m", "p") + "y = Relu (p)"
NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
LINEAR = 'mode = "linear", coordinate_transformation_mode = "half_pixel"'
X = "float[{N},2,3,4] x"


def of(line: str, batch: str = "1", opset: int = 17, given: str = X, **arrays: np.ndarray) -> onnx.ModelProto:
    return graph(given, "float[b,c,h,w] y", pair("x", "q") + f"m = {line}\n" + END, batch, opset, **arrays)


def resized(attributes: str, high: int, wide: int, batch: str = "1", opset: int = 17) -> onnx.ModelProto:
    return of(f"Resize <{attributes}> (q, , , sizes)", batch, opset, sizes=ints(int(batch), 2, high, wide))


@covers(1, 8)
@pytest.mark.parametrize("batch", BATCHES[:2])
@pytest.mark.parametrize(
    ("where", "high", "wide"),
    [
        *(("align_corners", *rest) for rest in [(6, 8), (5, 7), (3, 8), (1, 8), (48, 64)]),
        *(("asymmetric", *rest) for rest in [(6, 8), (7, 4)]),
        *(("half_pixel", *rest) for rest in [(27, 36), (4, 9), (2, 3)]),
        ("pytorch_half_pixel", 1, 8),
    ],
)
def test_case_1_linear(where: str, high: int, wide: int, batch: str) -> None:
    attributes = f'mode = "linear", coordinate_transformation_mode = "{where}"'
    found = same(resized(attributes, high, wide, batch), batch, relative=2e-6)
    if high > 20:  # too many outputs for the kernel of a depthwise Conv
        assert found.ops == ["Transpose", "Conv"] * 2 + ["Transpose", "Relu"]
    assert found.gpu() == (["Resize"], []) and "D23" in found.rules
    made = [name for name in found.rewritten.tensor_scales if name.startswith("m_")]
    assert len(made) == len(found.ops) - 2 and {found.rewritten.scales[name].origin.rule for name in made} <= {"D23"}
    feed = feed_of(found.plain, batch, 3)
    plain, rewritten = (run(engine(t).model, feed, ["y"])[0] for t in (found.plain, found.rewritten))
    assert np.abs(plain - rewritten).max() <= 2.01 * SCALE  # rounded twice more, and the shares to codes


def test_case_1_by_given_factors() -> None:
    """The coordinates follow the factor that is given, not the sizes that come out."""
    body = pair("x", "q") + f"m = Resize <{LINEAR}> (q, , factors)\n" + END
    factors = np.float32([1, 1, 1.4, 2.6])
    found = same(graph("float[1,2,3,4] x", "float[b,c,h,w] y", body, factors=factors), relative=2e-6)
    assert found.rewritten.types.shape("y") == (1, 2, 4, 10) and found.gpu() == (["Resize"], [])


@covers(1)
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("more", ["", ", cubic_coeff_a = -0.5", ", exclude_outside = 1"])
def test_case_1_cubic(where: str, more: str) -> None:
    attributes = f'mode = "cubic", coordinate_transformation_mode = "{where}"{more}'
    found = same(resized(attributes, 7, 8), relative=1e-5)
    assert "D23" in found.rules and found.gpu() == (["Resize"], [])
    feed = feed_of(found.plain, "1", 3)
    plain, rewritten = (run(engine(t).model, feed, ["y"])[0] for t in (found.plain, found.rewritten))
    assert np.abs(plain - rewritten).max() <= 3.01 * SCALE


@covers(1)
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("where", ["half_pixel", "align_corners", "asymmetric"])
def test_case_1_nearest_by_any_factor(rounding: str, where: str) -> None:
    """Exact: every weight is 0 or 1."""
    attributes = f'mode = "nearest", coordinate_transformation_mode = "{where}", nearest_mode = "{rounding}"'
    found = same(resized(attributes, 7, 41), bits=True)
    assert "D23" in found.rules and found.gpu() == (["Resize"], [])


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("mode", "pads"),
    [
        *((mode, pads) for mode in ("reflect", "edge") for pads in ([1, 1, 1, 1], [0, 3, 2, 0], [2, 0, 0, 0])),
        ("wrap", [1, 2, 2, 1]),
        ("constant", [1, 2, 0, 1]),
        ("constant", [-1, 2, 0, -1]),
        ("constant", [16, 0, 17, 0]),
    ],
)
def test_case_2_pads(mode: str, pads: list[int], batch: str) -> None:
    """Bit for bit; a constant of 0.5 is 16 steps of the scale."""
    value = np.float32(0 if pads[0] > 2 else 0.5)
    more = ", v" if mode == "constant" else ""
    arrays = {"pads": ints(0, 0, *pads[:2], 0, 0, *pads[2:]), **({"v": value} if more else {})}
    opset = 19 if mode == "wrap" else 17
    found = same(
        of(f'Pad <mode = "{mode}"> (q, pads{more})', batch, opset, **arrays), batch, bits=True, platform="jetpack-6.2"
    )
    assert "D23" in found.rules and found.gpu() == (["Pad"], [])


@covers(7)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 15, 2, 0, 0, 16, 2]])
def test_case_7_of_zeros(pads: list[int], batch: str) -> None:
    found = same(of("Pad (q, pads)", batch, pads=ints(*pads)), batch, bits=True)
    assert set(found.ops) == {"Conv", "Relu"} and found.gpu() == (["Pad"], [])
    convs = [node for node in found.rewritten.graph.nodes if node.op_type == "Conv"]
    kernels = np.prod([conv.get("kernel_shape") for conv in convs], axis=0).tolist()
    assert kernels == [pads[2] + pads[6] + 1, pads[3] + pads[7] + 1] and {c.get("group") for c in convs} == {2}
    assert found.rewritten.scales["m"].origin.rule == found.plain.scales["m"].origin.rule
    more = {name: SCALE for name in found.rewritten.tensor_scales if name.startswith("m_")}
    assert found.rewritten.tensor_scales == {**found.plain.tensor_scales, **more}


@covers(2, 5)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_5_of_zeros(batch: str) -> None:
    found = same(of("Pad (q, pads)", batch, pads=ints(0, 2, 0, 0, 0, 1, 0, 0)), batch, bits=True)
    assert found.ops == ["Conv", "Relu"]
    more = {"pads": ints(0, 2, 1, 1, 0, 1, 0, 1), "v": np.float32(0)}
    found = same(of("Pad (q, pads, v)", batch, **more), batch, bits=True)
    assert found.ops == ["Conv", "Conv", "Relu"] and found.gpu()[1] == []
    assert found.rewritten.tensor_scales["m_channels"] == SCALE
    found = same(of('Pad <mode = "reflect"> (q, pads)', batch, pads=ints(0, 1, 0, 1, 0, 1, 0, 0)), batch, bits=True)
    assert found.ops == ["Conv", "Conv", "Relu"] and found.gpu()[1] == []


def test_scales_pass_as_before() -> None:
    """Rule S3 took a Pad's scale on; the Conv in its place hands it on too, both ways."""
    body = pair("x", "q") + "m = Pad (q, pads)\nn = Relu (m)\no = Pad (n, pads)\n" + pair("o", "p") + "y = Relu (p)"
    found = same(graph(X, "float[b,c,h,w] y", body, pads=ints(0, 0, 1, 1, 0, 0, 0, 0)), bits=True)
    assert found.rewritten.tensor_scales == found.plain.tensor_scales
    assert found.rewritten.scales["m"].origin.rule == "D23"


@covers(3, 6)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("op", ["Expand", "Tile"])
@pytest.mark.parametrize(
    ("sizes", "made", "ops"),
    [
        ("5,1,1", (5, 7, 20), ["Resize"]),
        ("5,1,4", (5, 40, 4), ["Resize", "Resize"]),
        ("1,4,3", (6, 4, 3), ["Conv"]),
        ("1,1,1", (6, 4, 3), ["Conv", "Resize"]),
        ("3,1,2", (3, 41, 2), ["Transpose", "Conv", "Transpose"]),
    ],
)
def test_case_3(sizes: str, made: tuple[int, ...], ops: list[str], op: str, batch: str) -> None:
    """A prime number above 32 is no Resize."""
    before = [int(size) for size in sizes.split(",")]
    wanted = [1, *made] if op == "Expand" else [1, *(m // b for m, b in zip(made, before))]
    given = f"float[{{N}},{sizes}] x"
    found = same(of(f"{op} (q, sizes)", batch, given=given, sizes=ints(*wanted)), batch, bits=True)
    assert found.ops == [*ops, "Relu"] and found.gpu() == ([op], [])


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("repeats", [[1, 1, 2, 1], [1, 1, 3, 2], [1, 4, 1, 1], [1, 4, 1, 2]])
def test_case_3_tile(repeats: list[int], batch: str) -> None:
    found = same(of("Tile (q, r)", batch, r=ints(*repeats)), batch, bits=True)
    assert found.rules == ["D23"] and found.gpu() == (["Tile"], [])


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("axis", "parts"),
    [
        (2, [(-1, 9), (0, -1)]),  # a roll
        (3, [(3, 9), (0, 3)]),
        (2, [(1, 2), None, (1, 2)]),  # a reflection in parts
        (3, [(0, 1), (0, 1), None]),
    ],
)
def test_case_4(axis: int, parts: list, batch: str) -> None:  # type: ignore[type-arg]
    lines, names, arrays = "", [], {"a": ints(axis)}
    for number, part in enumerate(parts):
        names.append(f"t{number}" if part else "q")
        if part:
            lines += f"t{number} = Slice (q, b{number}, e{number}, a)\n"
            arrays.update({f"b{number}": ints(part[0]), f"e{number}": ints(part[1])})
    body = pair("x", "q") + lines + f"m = Concat <axis = {axis}> ({', '.join(names)})\n" + END
    found = same(graph(X, "float[b,c,h,w] y", body, batch, **arrays), batch, bits=True)
    assert found.rules == ["D23"] and found.gpu() == (["Concat"], []) and "Slice" not in found.ops


@pytest.mark.parametrize(
    "body",
    [
        "n = Slice (q, b, e, a)\n" + pair("n", "o", "s2") + "m = Concat <axis = 2> (o, q)\n",  # two scales
        "n = Slice (q, b, e, a)\nl = Relu (n)\nm = Concat <axis = 2> (l, q)\n",  # a layer between
    ],
)
def test_case_4_not(body: str) -> None:
    arrays = {"a": ints(2), "b": ints(0), "e": ints(1), "s2": np.float32(SCALE / 2)}
    arrays = {name: values for name, values in arrays.items() if name in body.replace("(", " ").replace(")", " ")}
    body = pair("x", "q") + (pair("x1", "r") if ", r)" in body else "") + body + END
    given = "float[1,2,3,4] x" + (", float[1,2,3,4] x1" if "r)" in body else "")
    found = both(graph(given, "float[b,c,h,w] y", body, **arrays))
    assert found.ops.count("Concat") == 1 and "Conv" not in found.ops


@covers(6)
@pytest.mark.parametrize("batch", BATCHES[:2])  # sizes name a batch size
@pytest.mark.parametrize("attributes", [NEAREST, LINEAR])
@pytest.mark.parametrize("opset", [11, 17, 19])
def test_case_6_by_sizes(opset: int, attributes: str, batch: str) -> None:
    none = np.zeros(0, np.float32)
    more = {"sizes": ints(int(batch), 2, 6, 16), **({"roi": none, "none": none} if opset < 13 else {})}
    line = f"Resize <{attributes}> (q, {'roi, none' if opset < 13 else ', '}, sizes)"
    if opset < 13:
        body = pair("x", "q") + f"m = {line}\ny = Relu (m)"
        found = same(graph(X, "float[b,c,h,w] y", body, batch, opset, **more), batch, bits=True)
    else:
        found = same(of(line, batch, opset, **more), batch, bits=True)
    node = found.rewritten.graph.producer["m"]
    assert found.gpu() == (["Resize"], []) and len(node.inputs) == 3
    assert found.rewritten.graph.array(node.inputs[2]).tolist() == [1, 1, 2, 4]  # type: ignore[union-attr]
    assert found.rewritten.tensor_scales == found.plain.tensor_scales


@covers(6)
@pytest.mark.parametrize("batch", BATCHES[:2])
@pytest.mark.parametrize(
    ("mode", "where", "rounding", "now"),
    [
        ("nearest", "pytorch_half_pixel", "round_prefer_ceil", ("asymmetric", "floor")),
        ("linear", "pytorch_half_pixel", "floor", ("half_pixel", "round_prefer_floor")),
    ],
)
def test_case_6_by_other_words(mode: str, where: str, rounding: str, now: tuple[str, str], batch: str) -> None:
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "{where}", nearest_mode = "{rounding}"'
    found = same(resized(attributes, 9, 8, batch), batch, bits=True)
    node = found.rewritten.graph.producer["m"]
    assert found.gpu() == (["Resize"], []) and node.op_type == "Resize"
    assert (node.get("coordinate_transformation_mode"), node.get("nearest_mode")) == now


@covers(6)
@pytest.mark.parametrize("batch", BATCHES[:2])
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel"])
@pytest.mark.parametrize(("high", "wide"), [(8, 8), (5, 7), (6, 1), (3, 8), (5, 5)])
def test_case_6_poolings(high: int, wide: int, where: str, batch: str) -> None:
    attributes = f'mode = "linear", coordinate_transformation_mode = "{where}"'
    found = same(resized(attributes, 3 * high, 4 * wide, batch), batch, bits=False, relative=2e-6)
    even = high % 2 == 0 or wide % 2 == 0
    assert found.ops == ["Resize", *["AveragePool"] * (1 + even), "Relu"]
    assert found.gpu() == (["Resize"], []) and "D23" in found.rules
    made = [name for name in found.rewritten.tensor_scales if name.startswith("m_")]
    assert {found.rewritten.scales[name].origin.rule for name in made} == {"D23"}


@covers(6)
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize(("high", "wide", "count"), [(28, 28, 1), (65, 65, 2), (64, 7, 2), (32, 1, 1)])
def test_case_6_of_one_value(high: int, wide: int, count: int, where: str) -> None:
    """What DeepLab makes of its mean over the image."""
    attributes = f'mode = "linear", coordinate_transformation_mode = "{where}"'
    body = pair("x", "q") + f"m = Resize <{attributes}> (q, , , sizes)\n" + END
    found = same(graph("float[1,2,1,1] x", "float[b,c,h,w] y", body, sizes=ints(1, 2, high, wide)), bits=True)
    assert found.ops == [*["Resize"] * count, "Relu"] and found.gpu() == (["Resize"], [])


@covers(6)
@pytest.mark.parametrize("batch", BATCHES[:2])
def test_case_6_in_a_row(batch: str) -> None:
    found = same(resized(NEAREST, 3 * 64, 4 * 33, batch), batch, bits=True)
    assert found.ops == ["Resize", "Resize", "Relu"] and found.gpu() == (["Resize"], [])


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("how", ["", "<exclusive = 1>", "<reverse = 1>", "<exclusive = 1, reverse = 1>"])
def test_case_3_cumsum(how: str, axis: int, batch: str) -> None:
    found = same(of(f"CumSum {how} (q, a)", batch, a=ints(axis)), batch, bits=True)
    assert found.rules == ["D23"] and found.gpu() == (["CumSum"], [])
    assert found.ops == ["Conv", "Relu"]  # so small that a depthwise Conv holds the whole matrix


def test_what_it_costs() -> None:
    """Reflect padding of a style transfer network's layer: a transition less, in INT8 and FP16 as exact as before."""
    body = pair("x", "q") + 'm = Pad <mode = "reflect"> (q, pads)\n' + pair("m", "p") + "y = Conv (p, w)"
    w = np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32) / 17
    arrays = {"pads": ints(0, 0, 1, 1, 0, 0, 1, 1), "w": w}
    found = same(
        graph(
            "float[1,32,64,64] x",
            "float[b,c,h,w] y",
            pair("x0", "x1").replace("x0", "x") + body.replace(pair("x", "q"), "q = Relu (x1)\n"),
            **arrays,
        )
    )
    before, after = (t.costs for t in (found.plain, found.rewritten))
    assert before is not None and after is not None and after.least[1] < before.least[1] - 0.2
    assert milliseconds(found)[1] - milliseconds(found)[0] < 0.18
    feed = {"x": np.random.default_rng(1).standard_normal((1, 32, 64, 64)).astype(np.float32)}
    assert decibels(found.rewritten, feed) > 38  # one rounding of the input
    assert decibels(found.rewritten, feed, fp16=True) > 55


@pytest.mark.parametrize(
    ("line", "given", "arrays"),
    [
        case("tensors that are not four-dimensional", "CumSum (q, a)", "float[1,2,3] x", {"a": ints(1)}),
        case("sizes that are not known", "CumSum (q, a)", "float[1,2,h,3] x", {"a": ints(1)}),
        case("more than 8192 along an axis", "CumSum (q, a)", "float[1,1,8193,1] x", {"a": ints(3)}),
        case("the batch axis", "CumSum (q, a)", "float[3,2,3,4] x", {"a": ints(0)}),
        case("the batch axis", "Tile (q, r)", X, {"r": ints(2, 1, 2, 1)}),
        case("the batch axis", "Expand (q, r)", X, {"r": ints(3, 2, 3, 4)}),
        case("the batch axis", "Pad (q, r)", X, {"r": ints(0, 0, 1, 1, 1, 0, 1, 1)}),
        case("parameters that are computed", "Pad (q, pads, low)", X, {"pads": ints(0, 0, 1, 1, 0, 0, 0, 0)}),
        case(RESIZE, f"Resize <{LINEAR}, axes = [0, 1, 2, 3]> (q, , , sizes)", X, {"sizes": ints(1, 2, 7, 9)}),
        case(RESIZE, f"Resize <{NEAREST}> (q, , , sizes)", X, {"sizes": ints(1, 4, 3, 4)}),
        case(RESIZE, f"Resize <{LINEAR}> (q, , f)", X, {"f": np.float32([1, 1.2, 2, 2])}),
    ],
)
def test_not(line: str, given: str, arrays: dict[str, np.ndarray]) -> None:
    low = "low = ReduceMin <keepdims = 0> (q)\n" if "low" in line else ""
    rank = "b,c,h" if given.count(",") == 2 else "b,c,h,w"
    body = pair("x", "q") + low + f"m = {line}\n" + END
    opset = 18 if "axes" in line else 17
    options = TranslateOptions(**{**ORIN, "platform": "jetpack-6.2"}, dla_rewrites=True)
    made = translate(graph(given, f"float[{rank}] y", body, opset=opset, **arrays), options)
    node = made.graph.producer["m"]
    assert "D23" not in {a.rule for a in made.rewrites.applied} and node.op_type == line.split()[0]
    assert made.rewrites.reasons[node.name]


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        (f"{LINEAR}, antialias = 1", "antialias"),
        (f'{NEAREST}, keep_aspect_ratio_policy = "not_larger"', "keep_aspect_ratio_policy"),
        ('mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize"', "coordinate_transformation_mode"),
    ],
)
def test_not_what_no_parser_reads(attributes: str, match: str) -> None:
    more = {"roi": np.float32([0, 0, 0, 0, 1, 1, 0.5, 0.5])} if "crop" in attributes else {}
    line = f"Resize <{attributes}> (q, {'roi' if more else ''}, , sizes)"
    with pytest.raises(UserError, match=match):
        both(of(line, opset=18, sizes=ints(1, 2, 6, 8), **more), platform="jetpack-6.2")


def test_not_below_opset_11() -> None:
    body = pair("x", "q") + 'm = Resize <mode = "nearest"> (q, scales)\n' + END
    factors = np.float32([1, 1, 1.5, 1.5])
    found = both(graph("float[1,2,4,4] x", "float[b,c,h,w] y", body, opset=10, scales=factors))
    assert "Resize" in found.ops and "D23" not in found.rules
    line = of("Expand (q, sizes)", opset=10, given="float[1,2,1,1] x", sizes=ints(1, 2, 3, 1))
    assert "Resize" not in same(line).ops


@covers("operators that change nothing")
def test_padding_by_nothing_is_left_whatever_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule D9 makes a Scale of it; without that rule it stays, and those behind it are still looked at."""
    monkeypatch.setattr(dla, "RULES", (linear_axis,))
    body = pair("x", "q") + "m = Pad (q, none)\n" + pair("m", "p", "s2") + "n = Pad (p, some)\n" + pair("n", "o", "s2")
    more = {"none": ints(*[0] * 8), "some": ints(0, 0, 1, 1, 0, 0, 1, 1), "s2": np.float32(SCALE / 2)}
    found = both(graph(X, "float[b,c,h,w] y", body + "y = Relu (o)", **more))
    assert found.rules == ["D23"] and found.ops == ["Pad", "Conv", "Relu"]
    assert found.reason(found.rewritten.graph.producer["m"].name)


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axis", [2, 3, -2, -1])
def test_case_4_of_several(axis: int, batch: str) -> None:
    shapes = ("{N},3,4,5", "{N},3,2,5") if axis in (2, -2) else ("{N},3,4,5", "{N},3,4,1")
    inputs = ", ".join(f"float[{shape}] x{i}" for i, shape in enumerate(shapes))
    body = pair("x0", "q") + pair("x1", "r") + f"m = Concat <axis = {axis}> (q, r, q)\n" + END
    found = same(graph(inputs, "float[b,c,h,w] y", body, batch), batch, bits=True)
    assert found.ops == ["Transpose"] * 3 + ["Concat", "Transpose", "Relu"] and found.gpu() == (["Concat"], [])


@covers("a Concat of constants")
def test_not_of_a_constant() -> None:
    body = pair("x", "q") + "m = Concat <axis = 2> (q, k)\n" + END
    found = both(graph("float[1,3,4,5] x", "float[b,c,h,w] y", body, k=np.ones((1, 3, 1, 5), np.float32)))
    assert "D23" not in found.rules and "activations" in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        case("tensors that are not four-dimensional", "1,3,4", 2),
        case("the batch axis", "1,3,4,5", 0),
    ],
)
def test_not_of_several(shape: str, axis: int) -> None:
    body = pair("x", "q") + pair("x1", "r") + f"m = Concat <axis = {axis}> (q, r)\n" + END
    found = both(graph(f"float[{shape}] x, float[{shape}] x1", f"float[{shape.replace('1,', 'b,')}] y", body))
    assert "D23" not in found.rules
