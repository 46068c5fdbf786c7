"""Rule D6: Flatten, Squeeze and Unsqueeze become Reshape."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator.translation.passes.dla.reshapes import target_sizes
from tests.dla.check import BATCHES, SCALE, both, covers, graph, ints, pair, same, weights


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("op", "sizes", "out"),
    [
        ("Flatten (r)", [0, 24], "a,b"),
        ("Flatten <axis = 2> (r)", None, "a,b"),
        ("Unsqueeze (r, two)", [0, 2, 1, 3, 4], "a,b,c,d,e"),
        ("Squeeze (v, two)", [0, 2, 3, 4], "a,b,c,d"),
    ],
)
def test_case_1(op: str, sizes: list[int], out: str, batch: str) -> None:
    body = (
        pair("x", "q")
        + f"r = Relu (q)\nu = Reshape (r, five)\nv = Relu (u)\nm = {op}\n"
        + pair("m", "p")
        + "y = Relu (p)"
    )
    arrays = {"two": ints(2), "five": ints(0, 2, 1, 3, 4)}
    found = same(graph("float[{N},2,3,4] x", f"float[{out}] y", body, batch, **arrays), batch, bits=True)
    reshape = next(n for n in found.rewritten.graph.nodes if n.outputs[0] == "m")
    if sizes is None:  # the first dimension changes; with an unknown batch size it is the one that is computed
        sizes = [int(batch) * 2, 12] if batch != "N" else [-1, 12]
    assert reshape.op_type == "Reshape"
    assert found.rewritten.graph.array(reshape.inputs[1]).tolist() == sizes  # type: ignore[union-attr]
    assert found.rewritten.tensor_scales == found.plain.tensor_scales


def test_a_squeeze_between_four_dimensions_and_four_runs_on_the_dla() -> None:
    """Unsqueeze of [N, C, L] behind a Reshape stays; Flatten that changes nothing but sizes of [N, C, 1, 1] does not."""
    assert target_sizes((1, 2, 3), (1, 2, 1, 3)) == [0, 2, 1, 3]
    assert target_sizes(("N", 2, 3), ("N", 6)) == [0, 6]
    assert target_sizes((None, 2, 3), (None, None)) is None
    assert target_sizes((4, 2, None), (4, None)) == [0, -1]
    assert target_sizes((2, 0, 3), (2, 0)) is None


@covers("where more than one size behind the first is unknown")
def test_not_where_sizes_are_unknown() -> None:
    body = pair("x", "q") + "m = Flatten <axis = 2> (q)\ny = Relu (m)"
    found = both(graph("float[N,C,H,W] x", "float[a,b] y", body))
    assert "D6" not in found.rules
    assert "not known" in found.reason(next(n.name for n in found.rewritten.graph.nodes if n.op_type == "Flatten"))


MASK = """
    m = Softmax <axis = 3> (q)
    u = Reshape (m, five)
    v = OP (u, mask)
    w = Reshape (v, four)
    y = Sigmoid (w)
"""
SHAPES = {"five": ints(1, 6, 2, 4, 5), "four": ints(6, 2, 4, 5)}


@covers(2)
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
@pytest.mark.parametrize(
    ("dims", "narrow"), [((1, 6, 1, 4, 5), [6, 1, 4, 5]), ((2, 1, 1), [1, 2, 1, 1]), ((), [1, 1, 1, 1])]
)
def test_case_2(dims: tuple[int, ...], narrow: list[int], op: str) -> None:
    """Windows are a batch of their own between two products: here between other layers that leave it alone."""
    mask = weights(1, *dims) if dims else np.float32(1.5)
    body = pair("x", "q") + MASK.replace("OP", op)
    found = same(graph("float[6,2,4,5] x", "float[6,2,4,5] y", body, **SHAPES, mask=mask), bits=True)
    assert found.ops == ["Softmax", op, "Sigmoid"] and found.gpu() == (["Reshape", op, "Reshape"], [])
    node = found.rewritten.graph.producer["w"]
    assert list(found.rewritten.graph.initializers[node.inputs[1]].dims) == narrow
    assert found.rewritten.rewrites.tensors == {"u": ["m"], "v": ["w"]}


def test_case_2_keeps_the_scale_that_the_model_gives_between() -> None:
    body = pair("x", "q") + MASK.replace("OP", "Mul").replace("Reshape (v,", "Reshape (p,")
    body = body.replace("w = Reshape", pair("v", "p") + "w = Reshape")
    found = both(graph("float[6,2,4,5] x", "float[6,2,4,5] y", body, **SHAPES, mask=np.float32(1.5)))
    assert "D6" in found.rules and found.rewritten.tensor_scales == {"x": SCALE, "w": SCALE}


@covers(
    "case 2 where another layer reads a tensor between, where sizes are not known or scales of the model's own differ"
)
@pytest.mark.parametrize("change", ["reader", "scale"])
def test_not_case_2(change: str) -> None:
    body, outputs = pair("x", "q") + MASK.replace("OP", "Add"), "float[6,2,4,5] y"
    if change == "reader":
        body, outputs = body + "other = Relu (u)\n", outputs + ", float[1,6,2,4,5] other"
    if change == "scale":
        body = body.replace("u = Reshape (m,", pair("m", "n", "s2") + "u = Reshape (n,").replace(
            "v = Add (u,", pair("u", "o") + "v = Add (o,"
        )
    arrays = {"s2": np.float32(1 / 64)} if change == "scale" else {}
    found = both(graph("float[6,2,4,5] x", outputs, body, **SHAPES, mask=weights(1, 1, 6, 1, 4, 5), **arrays))
    assert "D6" not in found.rules and "Add" in found.gpu()[1]
