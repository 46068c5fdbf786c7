"""Rule D23: what is linear along an axis becomes a 1x1 Conv with a constant matrix."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from tests.dla.check import (
    BATCHES,
    ORIN,
    SCALE,
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

END = pair("m", "p") + "y = Relu (p)"
LINEAR = 'mode = "linear", coordinate_transformation_mode = "half_pixel"'
X = "float[{N},2,3,4] x"


def of(line: str, batch: str = "1", opset: int = 17, given: str = X, **arrays: np.ndarray) -> onnx.ModelProto:
    return graph(given, "float[b,c,h,w] y", pair("x", "q") + f"m = {line}\n" + END, batch, opset, **arrays)


def resized(attributes: str, high: int, wide: int, batch: str = "1", opset: int = 17) -> onnx.ModelProto:
    return of(f"Resize <{attributes}> (q, , , sizes)", batch, opset, sizes=ints(int(batch), 2, high, wide))


@covers(1)
@pytest.mark.parametrize("batch", BATCHES[:2])
@pytest.mark.parametrize(
    ("where", "high", "wide", "convs"),
    [
        *(("align_corners", *rest) for rest in [(6, 8, 2), (5, 7, 2), (3, 8, 1), (1, 8, 2), (48, 64, 2)]),
        *(("asymmetric", *rest) for rest in [(6, 8, 2), (7, 4, 1)]),
        *(("half_pixel", *rest) for rest in [(27, 36, 2), (4, 9, 2), (2, 3, 2)]),
        ("pytorch_half_pixel", 1, 8, 2),
    ],
)
def test_case_1_linear(where: str, high: int, wide: int, convs: int, batch: str) -> None:
    attributes = f'mode = "linear", coordinate_transformation_mode = "{where}"'
    found = same(resized(attributes, high, wide, batch), batch, relative=2e-6)
    assert found.ops == ["Transpose", "Conv"] * convs + ["Transpose", "Relu"]
    assert found.gpu() == (["Resize"], []) and "D23" in found.rules
    made = [name for name in found.rewritten.tensor_scales if name.startswith("m_")]
    assert len(made) == 2 * convs and {found.rewritten.scales[name].origin.rule for name in made} == {"D23"}
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


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("repeats", [[1, 1, 2, 1], [1, 1, 3, 2]])
def test_case_3_tile(repeats: list[int], batch: str) -> None:
    found = same(of("Tile (q, r)", batch, r=ints(*repeats)), batch, bits=True)
    assert found.rules == ["D23"] and found.gpu() == (["Tile"], [])


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("how", ["", "<exclusive = 1>", "<reverse = 1>", "<exclusive = 1, reverse = 1>"])
def test_case_3_cumsum(how: str, axis: int, batch: str) -> None:
    found = same(of(f"CumSum {how} (q, a)", batch, a=ints(axis)), batch, bits=True)
    assert found.rules == ["D23"] and found.gpu() == (["CumSum"], [])
    assert found.ops == (["Conv", "Relu"] if axis == 1 else ["Transpose", "Conv", "Transpose", "Relu"])


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
    assert before is not None and after is not None and after.total < before.total - 0.4  # type: ignore[operator]
    assert milliseconds(found)[1] - milliseconds(found)[0] < 0.18
    feed = {"x": np.random.default_rng(1).standard_normal((1, 32, 64, 64)).astype(np.float32)}
    assert decibels(found.rewritten, feed) > 38  # one rounding of the input
    assert decibels(found.rewritten, feed, fp16=True) > 55


@pytest.mark.parametrize(
    ("line", "given", "arrays"),
    [
        pytest.param(
            "CumSum (q, a)", "float[1,2,3] x", {"a": ints(1)}, marks=covers("tensors that are not four-dimensional")
        ),
        pytest.param("CumSum (q, a)", "float[1,2,h,3] x", {"a": ints(1)}, marks=covers("sizes that are not known")),
        pytest.param(
            "CumSum (q, a)", "float[1,1,8193,1] x", {"a": ints(3)}, marks=covers("more than 8192 along an axis")
        ),
        pytest.param("CumSum (q, a)", "float[3,2,3,4] x", {"a": ints(0)}, marks=covers("the batch axis")),
        pytest.param("Tile (q, r)", X, {"r": ints(2, 1, 2, 1)}, marks=covers("the batch axis")),
        pytest.param(
            'Pad <mode = "edge"> (q, pads)',
            X,
            {"pads": ints(0, 1, 0, 0, 0, 0, 0, 0)},
            marks=covers("padding of channels"),
        ),
        pytest.param(
            "Pad (q, pads, low)",
            X,
            {"pads": ints(0, 0, 1, 1, 0, 0, 0, 0)},
            marks=covers("parameters that are computed"),
        ),
        pytest.param(
            f"Resize <{LINEAR}, axes = [0, 1, 2, 3]> (q, , , sizes)",
            X,
            {"sizes": ints(1, 2, 7, 9)},
            marks=covers(
                "`Resize` with tf_crop_and_resize, antialias, named axes or an aspect ratio to keep, and below opset 11"
            ),
        ),
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
