"""Rule D23: what is linear along an axis becomes a 1x1 Conv with a constant matrix."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.translation.passes import dla
from qdq_translator.translation.passes.dla import linear_axis
from tests.dla.check import ORIN, SCALE, both, case, covers, decibels, graph, ints, milliseconds, pair, same

RESIZE = "`Resize` with tf_crop_and_resize, antialias, named axes, an aspect ratio to keep or other axes than H and W, and below opset 11"
END = pair("m", "p") + "y = Relu (p)"
NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
LINEAR = 'mode = "linear", coordinate_transformation_mode = "half_pixel"'
X = "float[{N},2,3,4] x"


def of(line: str, batch: str = "1", opset: int = 17, given: str = X, **arrays: np.ndarray) -> onnx.ModelProto:
    return graph(given, "float[b,c,h,w] y", pair("x", "q") + f"m = {line}\n" + END, batch, opset, **arrays)


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


@pytest.mark.parametrize(("line", "given", "arrays"), [
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
])  # fmt: skip
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


@pytest.mark.parametrize(("attributes", "match"), [
    (f"{LINEAR}, antialias = 1", "antialias"),
    (f'{NEAREST}, keep_aspect_ratio_policy = "not_larger"', "keep_aspect_ratio_policy"),
    ('mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize"', "coordinate_transformation_mode"),
])  # fmt: skip
def test_not_what_no_parser_reads(attributes: str, match: str) -> None:
    more = {"roi": np.float32([0, 0, 0, 0, 1, 1, 0.5, 0.5])} if "crop" in attributes else {}
    line = f"Resize <{attributes}> (q, {'roi' if more else ''}, , sizes)"
    with pytest.raises(UserError, match=match):
        both(of(line, opset=18, sizes=ints(1, 2, 6, 8), **more), platform="jetpack-6.2")


@covers("operators that change nothing")
def test_padding_by_nothing_is_left_whatever_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule D9 makes a Scale of it; without that rule it stays, and those behind it are still looked at."""
    monkeypatch.setattr(dla, "RULES", (linear_axis,))
    body = pair("x", "q") + "m = Pad (q, none)\n" + pair("m", "p", "s2") + "n = Pad (p, some)\n" + pair("n", "o", "s2")
    more = {"none": ints(*[0] * 8), "some": ints(0, 0, 1, 1, 0, 0, 1, 1), "s2": np.float32(SCALE / 2)}
    found = both(graph(X, "float[b,c,h,w] y", body + "y = Relu (o)", **more))
    assert found.rules == ["D23"] and found.ops == ["Pad", "Conv", "Relu"]
    assert found.reason(found.rewritten.graph.producer["m"].name)


@covers("a Concat of constants")
def test_not_of_a_constant() -> None:
    body = pair("x", "q") + "m = Concat <axis = 2> (q, k)\n" + END
    found = both(graph("float[1,3,4,5] x", "float[b,c,h,w] y", body, k=np.ones((1, 3, 1, 5), np.float32)))
    assert "D23" not in found.rules and "activations" in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(
    ("shape", "axis"), [case("tensors that are not four-dimensional", "1,3,4", 2), case("the batch axis", "1,3,4,5", 0)]
)
def test_not_of_several(shape: str, axis: int) -> None:
    body = pair("x", "q") + pair("x1", "r") + f"m = Concat <axis = {axis}> (q, r)\n" + END
    found = both(graph(f"float[{shape}] x, float[{shape}] x1", f"float[{shape.replace('1,', 'b,')}] y", body))
    assert "D23" not in found.rules
