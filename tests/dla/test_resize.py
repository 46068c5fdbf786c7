"""Rule D12: Resize by sizes becomes Resize by integer factors."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from tests.dla.check import BATCHES, graph, ints, pair, same

NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
LINEAR = 'mode = "linear", coordinate_transformation_mode = "half_pixel"'
END = pair("m", "p") + "y = Relu (p)"


def resized(attributes: str, h: int, w: int, batch: str = "1", opset: int = 17):  # type: ignore[no-untyped-def]
    roi = "" if opset >= 13 else "roi"
    body = pair("x", "q") + f"m = Resize <{attributes}> (q, {roi}, {'' if opset >= 13 else 'none'}, sizes)\n" + END
    more = {} if opset >= 13 else {"roi": np.zeros(0, np.float32), "none": np.zeros(0, np.float32)}
    count = int(batch) if batch != "N" else 1
    return graph("float[{N},2,3,4] x", "float[b,c,h,w] y", body, batch, opset, sizes=ints(count, 2, h, w), **more)


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
        (NEAREST, 4, 8, "3x4 to 4x8 is not a whole factor"),
        ('mode = "nearest", coordinate_transformation_mode = "asymmetric", axes = [0, 1, 2, 3]', 6, 8, "axes"),
    ],
)
def test_not(attributes: str, h: int, w: int, why: str) -> None:
    found = same(resized(attributes, h, w, opset=18 if "axes" in attributes else 17, batch="1"), platform="jetpack-6.2")
    assert "D12" not in found.rules
    assert why in found.reason(found.rewritten.graph.producer["m"].name)


def test_not_with_unknown_sizes() -> None:
    body = pair("x", "q") + f"m = Resize <{NEAREST}> (q, , , sizes)\n" + END
    explicit = graph("float[1,2,h,w] x", "float[1,2,a,b] y", body, sizes=ints(1, 2, 6, 8))
    made = translate(explicit, TranslateOptions(target="orin-dla", platform="jetpack-6.2", dla_rewrites=True))
    left = {row["op"]: row["why"] for row in made.rewrites.left(made.dla)}
    assert made.rewrites.applied == () and left["Resize"] == "its sizes are not known"
