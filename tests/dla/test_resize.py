"""Rule D12: Resize by sizes becomes Resize by integer factors."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.passes.dla.resize import same_inputs
from tests.dla.check import BATCHES, SCALE, both, covers, engine, feed_of, graph, ints, pair, same
from tests.explicit_reference import run

NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
LINEAR = 'mode = "linear", coordinate_transformation_mode = "half_pixel"'
END = pair("m", "p") + "y = Relu (p)"


def resized(attributes: str, h: int, w: int, batch: str = "1", opset: int = 17):  # type: ignore[no-untyped-def]
    roi = "" if opset >= 13 else "roi"
    body = pair("x", "q") + f"m = Resize <{attributes}> (q, {roi}, {'' if opset >= 13 else 'none'}, sizes)\n" + END
    more = {} if opset >= 13 else {"roi": np.zeros(0, np.float32), "none": np.zeros(0, np.float32)}
    count = int(batch) if batch != "N" else 1
    return graph("float[{N},2,3,4] x", "float[b,c,h,w] y", body, batch, opset, sizes=ints(count, 2, h, w), **more)


@covers(1)
@pytest.mark.parametrize("batch", BATCHES[:2])  # sizes name a batch size
@pytest.mark.parametrize("attributes", [NEAREST, LINEAR])
@pytest.mark.parametrize("opset", [11, 17, 19])
def test_case_1(opset: int, attributes: str, batch: str) -> None:
    if opset == 11:
        body = pair("x", "q") + f"m = Resize <{attributes}> (q, roi, none, sizes)\ny = Relu (m)"
        more = {"roi": np.zeros(0, np.float32), "none": np.zeros(0, np.float32), "sizes": ints(int(batch), 2, 6, 16)}
        explicit = graph("float[{N},2,3,4] x", "float[b,c,h,w] y", body, batch, opset, **more)
    else:
        explicit = resized(attributes, 6, 16, batch, opset)
    found = same(explicit, batch, bits=True)
    assert found.gpu() == (["Resize"], [])
    node = found.rewritten.graph.producer["m"]
    assert len(node.inputs) == 3
    assert found.rewritten.graph.array(node.inputs[2]).tolist() == [1, 1, 2, 4]  # type: ignore[union-attr]
    assert found.rewritten.tensor_scales == found.plain.tensor_scales


def test_factors_from_shape_arithmetic() -> None:
    body = pair("x", "q") + (
        "sh = Shape <start = 2> (q)\nf = Cast <to = 1> (sh)\nd = Div (f, f)\ne = Mul (d, two)\n"
        f"sc = Concat <axis = 0> (ones, e)\nm = Resize <{NEAREST}> (q, , sc)\n" + END
    )
    more = {"two": np.float32(2), "ones": np.ones(2, np.float32)}
    found = same(graph("float[1,2,3,4] x", "float[b,c,h,w] y", body, **more), bits=True)
    assert found.ops == ["Resize", "Relu"] and not found.gpu()[1]


@pytest.mark.parametrize(
    ("attributes", "h", "w", "why"),
    [
        pytest.param(NEAREST, 4, 8, "by 1.33333 and 2", marks=covers("factors that are not whole")),
        pytest.param(NEAREST, 6, 6, "by 2 and 1.5", marks=covers("factors that are not whole")),
        pytest.param(
            NEAREST,
            3 * 37,
            4,
            "a prime number above 32",
            marks=covers("nearest by more than 32 with a prime factor above it"),
        ),
        pytest.param(f"{NEAREST}, axes = [0, 1, 2, 3]", 6, 8, "axes", marks=covers("named axes")),
        pytest.param(
            f'{NEAREST}, keep_aspect_ratio_policy = "not_larger"',
            6,
            8,
            "aspect",
            marks=covers("keep_aspect_ratio_policy other than stretch"),
        ),
    ],
)
def test_not(attributes: str, h: int, w: int, why: str) -> None:
    opset = 18 if "axes" in attributes or "aspect" in attributes else 17
    if why == "aspect":
        with pytest.raises(UserError, match="keep_aspect_ratio_policy"):
            both(resized(attributes, h, w, opset=opset, batch="1"), platform="jetpack-6.2")
        return
    found = same(resized(attributes, h, w, opset=opset, batch="1"), platform="jetpack-6.2")
    assert "D12" not in found.rules
    assert why in found.reason(found.rewritten.graph.producer["m"].name)


@covers("tf_crop_and_resize")
def test_not_where_it_crops() -> None:
    attributes = 'mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize", nearest_mode = "floor"'
    body = pair("x", "q") + f"m = Resize <{attributes}> (q, roi, , sizes)\n" + END
    more = {"roi": np.float32([0, 0, 0, 0, 1, 1, 0.5, 0.5]), "sizes": ints(1, 2, 6, 8)}
    with pytest.raises(UserError, match="coordinate_transformation_mode"):
        both(graph("float[1,2,3,4] x", "float[b,c,h,w] y", body, **more))


@covers("opset below 11 (which has no sizes)")
def test_not_below_opset_11() -> None:
    body = pair("x", "q") + 'm = Resize <mode = "nearest"> (q, scales)\n' + END
    factors = np.float32([1, 1, 1.5, 1.5])
    found = both(graph("float[1,2,4,4] x", "float[b,c,h,w] y", body, opset=10, scales=factors))
    assert "Resize" in found.ops and "D12" not in found.rules


@covers("sizes that are not known")
def test_not_with_unknown_sizes() -> None:
    body = pair("x", "q") + f"m = Resize <{NEAREST}> (q, , , sizes)\n" + END
    explicit = graph("float[1,2,h,w] x", "float[1,2,a,b] y", body, sizes=ints(1, 2, 6, 8))
    made = translate(explicit, TranslateOptions(target="orin-dla", platform="jetpack-6.2", dla_rewrites=True))
    left = {row.op: row.why for row in made.rewrites.left(made.dla)}
    assert made.rewrites.applied == () and left["Resize"] == "its sizes are not known"


@covers(2)
@pytest.mark.parametrize("batch", BATCHES[:2])
@pytest.mark.parametrize(
    ("mode", "where", "rounding", "now"),
    [
        ("nearest", "pytorch_half_pixel", "round_prefer_ceil", ("asymmetric", "floor")),
        ("linear", "pytorch_half_pixel", "floor", ("half_pixel", "round_prefer_floor")),
    ],
)
def test_case_2(mode: str, where: str, rounding: str, now: tuple[str, str], batch: str) -> None:
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "{where}", nearest_mode = "{rounding}"'
    explicit = resized(attributes, 9, 8, batch)
    found = same(explicit, batch, bits=True)
    assert found.gpu() == (["Resize"], [])
    node = found.rewritten.graph.producer["m"]
    assert (node.get("coordinate_transformation_mode"), node.get("nearest_mode")) == now


WHERE = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_which_coordinates_take_the_same_inputs(where: str, rounding: str) -> None:
    """Held against what ONNX Runtime makes of the numbers 0, 1, 2, ... along one axis."""
    for mode in ("nearest", "linear"):
        ours = ("asymmetric", "floor") if mode == "nearest" else ("half_pixel", "round_prefer_floor")
        for size in (1, 2, 3, 5):
            for factor in (1, 2, 3, 4, 5):
                results = []
                for one, two in ((where, rounding), ours):
                    words = f'mode = "{mode}", coordinate_transformation_mode = "{one}", nearest_mode = "{two}"'
                    body = f"y = Resize <{words}> (x, , factors)"
                    made = graph(
                        f"float[1,1,1,{size}] x", "float[b,c,h,w] y", body, factors=np.float32([1, 1, 1, factor])
                    )
                    feed = {"x": np.arange(size, dtype=np.float32).reshape(1, 1, 1, size) ** 2}
                    results += run(made, feed, ["y"])
                equal = np.array_equal(*results)
                assert not same_inputs(mode, (where, rounding), size, factor) or equal
                if where != "align_corners" and size > 1 and (mode == "nearest" or where != "asymmetric"):
                    assert same_inputs(mode, (where, rounding), size, factor) == equal, (mode, size, factor)


@covers(3)
@pytest.mark.parametrize("batch", BATCHES[:2])
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel"])
@pytest.mark.parametrize(("high", "wide"), [(8, 8), (5, 7), (6, 1), (3, 8), (5, 5)])
def test_case_3(high: int, wide: int, where: str, batch: str) -> None:
    attributes = f'mode = "linear", coordinate_transformation_mode = "{where}"'
    found = same(resized(attributes, 3 * high, 4 * wide, batch), batch, bits=False, relative=2e-6)
    even = high % 2 == 0 or wide % 2 == 0
    assert found.ops == ["Resize", *["AveragePool"] * (1 + even), "Relu"]
    assert found.gpu() == (["Resize"], []) and "D12" in found.rules
    made = [name for name in found.rewritten.tensor_scales if name.startswith("m_")]
    assert {found.rewritten.scales[name].origin.rule for name in made} == {"D12"}


def test_case_3_in_codes() -> None:
    """With one scale for all, the simulated engine differs from a Resize that rounds once by one code at most."""
    found = both(resized(LINEAR, 24, 32))
    feed = feed_of(found.plain, "1", 3)
    plain, rewritten = (run(engine(t).model, feed, ["y"])[0] for t in (found.plain, found.rewritten))
    assert np.abs(plain - rewritten).max() <= 1.01 * SCALE


@covers(4, 5)
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize(("high", "wide", "count"), [(28, 28, 1), (65, 65, 2), (64, 7, 2), (32, 1, 1)])
def test_cases_4_and_5_of_one_value(high: int, wide: int, count: int, where: str) -> None:
    """What DeepLab makes of its mean over the image."""
    attributes = f'mode = "linear", coordinate_transformation_mode = "{where}"'
    body = pair("x", "q") + f"m = Resize <{attributes}> (q, , , sizes)\n" + END
    found = same(graph("float[1,2,1,1] x", "float[b,c,h,w] y", body, sizes=ints(1, 2, high, wide)), bits=True)
    assert found.ops == [*["Resize"] * count, "Relu"] and found.gpu() == (["Resize"], [])


@covers(5)
@pytest.mark.parametrize("batch", BATCHES[:2])
def test_case_5(batch: str) -> None:
    found = same(resized(NEAREST, 3 * 64, 4 * 33, batch), batch, bits=True)
    assert found.ops == ["Resize", "Resize", "Relu"] and found.gpu() == (["Resize"], [])


@covers("antialias", "other axes than H and W")
@pytest.mark.parametrize(
    ("attributes", "sizes", "why"),
    [(f"{LINEAR}, antialias = 1", (1, 2, 18, 24), "antialias"), (NEAREST, (1, 4, 3, 4), "other axes")],
)
def test_not_by_these(attributes: str, sizes: tuple[int, ...], why: str) -> None:
    opset = 18 if "antialias" in attributes else 17
    body = pair("x", "q") + f"m = Resize <{attributes}> (q, , , sizes)\n" + END
    explicit = graph("float[1,2,3,4] x", "float[b,c,h,w] y", body, opset=opset, sizes=ints(*sizes))
    if "antialias" in attributes:
        with pytest.raises(UserError, match="antialias"):
            both(explicit, platform="jetpack-6.2")
        return
    found = same(explicit, platform="jetpack-6.2")
    assert "D12" not in found.rules
    assert why in found.reason(found.rewritten.graph.producer["m"].name)


def test_not_where_the_factor_of_the_channels_is_another_one() -> None:
    """Two channels by 1.2 are two again, but not the same."""
    body = pair("x", "q") + f"m = Resize <{LINEAR}> (q, , factors)\n" + END
    found = both(graph("float[1,2,3,4] x", "float[b,c,h,w] y", body, factors=np.float32([1, 1.2, 2, 2])))
    assert "D12" not in found.rules and "other axes" in found.reason(found.rewritten.graph.producer["m"].name)


@covers("other coordinates and interpolations", "linear by more than 8")
@pytest.mark.parametrize(("attributes", "high", "wide"), [('mode = "cubic"', 6, 8), (LINEAR, 27, 36)])
def test_not_what_rule_d23_takes(attributes: str, high: int, wide: int) -> None:
    found = same(resized(attributes, high, wide))
    assert "D12" not in found.rules and "D23" in found.rules and found.gpu()[1] == []
