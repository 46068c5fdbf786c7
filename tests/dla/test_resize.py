"""Rule D12: Resize by sizes becomes Resize by integer factors."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from tests.dla.check import BATCHES, both, covers, graph, ints, pair, same

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
        pytest.param(NEAREST, 4, 8, "3x4 to 4x8 is not a whole factor", marks=covers("factors that are not whole")),
        pytest.param(NEAREST, 6, 6, "is not a whole factor", marks=covers("factors that are not whole")),
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
    found = same(resized(attributes, h, w, opset=opset, batch="1"), platform="jetpack-6.2")
    assert "D12" not in found.rules
    assert why in found.reason(found.rewritten.graph.producer["m"].name)


@covers("tf_crop_and_resize")
def test_not_where_it_crops() -> None:
    attributes = 'mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize", nearest_mode = "floor"'
    body = pair("x", "q") + f"m = Resize <{attributes}> (q, roi, , sizes)\n" + END
    more = {"roi": np.float32([0, 0, 0, 0, 1, 1, 0.5, 0.5]), "sizes": ints(1, 2, 6, 8)}
    found = same(graph("float[1,2,3,4] x", "float[b,c,h,w] y", body, **more))
    assert "D12" not in found.rules and "crops" in found.reason(found.rewritten.graph.producer["m"].name)


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
    left = {row["op"]: row["why"] for row in made.rewrites.left(made.dla)}
    assert made.rewrites.applied == () and left["Resize"] == "its sizes are not known"
