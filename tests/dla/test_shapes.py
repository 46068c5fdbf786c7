"""Rule D1: shape arithmetic becomes constants."""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest

from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from tests.dla.check import BATCHES, both, case, covers, graph, ints, pair, same
from tests.small_models import model

CHUNK = (
    pair("x", "q")
    + """
    shape = Shape (q)
    c = Gather <axis = 0> (shape, one)
    up = Add (c, one)
    half = Div (up, two)
    y = Slice (q, zero, half, one)
"""
)
NUMBERS = {"zero": ints(0), "one": ints(1), "two": ints(2)}


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
def test_sizes_that_are_known_fold_whatever_the_batch(batch: str) -> None:
    explicit = graph("float[{N},6,5,5] x", "float[b,c,h,w] y", CHUNK, batch, **NUMBERS)
    found = same(explicit, batch, bits=True)
    assert found.ops == ["Slice"]
    assert found.rewritten.graph.array("half").tolist() == [3]  # type: ignore[union-attr]
    # with an unknown batch size the Shape itself is no constant; nobody reads it any more
    assert found.rules == ["D1"] * (3 if batch == "N" else 4)


@covers("results that depend on unknown sizes (`--shapes` gives them)")
def test_unknown_sizes_stay_and_shapes_make_them_known() -> None:
    explicit = graph("float[1,c,5,5] x", "float[b,d,h,w] y", CHUNK, **NUMBERS)
    assert "Gather" in same(explicit).ops
    found = same(explicit, shapes=["x:1x6x5x5"])
    assert found.ops == ["Slice"]
    # what was folded holds for these sizes only, and the graph input says so
    shape = found.rewritten.graph.inputs["x"].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [1, 6, 5, 5]


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
def test_sizes_that_follow_from_sizes_computed_in_float(batch: str) -> None:
    """A Pad of as many rows and columns as a stride needs, as in TensorFlow, three in a row: the second and the third are known
    only when the one before is a constant."""
    body, last = pair("x", "q"), "q"
    for k in range(3):
        body += (
            f"s{k} = Shape <start = 2> ({last})\nf{k} = Cast <to = 1> (s{k})\nh{k} = Mul (f{k}, half)\nu{k} = Ceil (h{k})\n"
            f"t{k} = Mul (u{k}, twice)\nd{k} = Sub (t{k}, f{k})\ni{k} = Cast <to = 7> (d{k})\n"
            f"p{k} = Concat <axis = 0> (front, i{k})\nw{k} = Pad ({last}, p{k})\n"
        )
        body += f"m{k} = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (w{k})\n" + pair(f"m{k}", f"o{k}")
        last = f"o{k}"
    more = {"half": np.float32(0.5), "twice": np.float32(2), "front": ints(*[0] * 6)}
    found = same(
        graph("float[{N},4,13,11] x", "float[b,c,h,w] y", body + f"y = Relu ({last})", batch, **more), batch, bits=True
    )
    assert set(found.ops) <= {"Conv", "MaxPool", "Relu"} and found.gpu()[1] == []
    assert found.rewritten.types.shape("y")[1:] == (4, 2, 2)  # type: ignore[index]


@covers(2)
def test_sizes_computed_in_float() -> None:
    body = pair("x", "q") + (
        "shape = Shape <start = 2> (q)\n f = Cast <to = 1> (shape)\n g2 = Mul (f, k)\n r = Floor (g2)\n"
        "hw = Cast <to = 7> (r)\n nc = Constant <value_ints = [1, 2]> ()\n sizes = Concat <axis = 0> (nc, hw)\n"
        'y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
        " (q, , , sizes)"
    )
    found = same(graph("float[1,2,3,4] x", "float[1,2,h,w] y", body, k=np.float32(2)), bits=True)
    assert found.ops == ["Resize"]
    assert found.rules[-1] == "D23"


@covers(1)
def test_padding_of_windows() -> None:
    """As exporters write Swin's: what is lacking to a multiple of 7, in torch's order of axes, which ONNX has the other way round."""
    body = pair("x", "q") + (
        "shape = Shape (q)\nh = Gather <axis = 0> (shape, two)\nrest = Mod (h, seven)\nlack = Sub (seven, rest)\n"
        "more = Mod (lack, seven)\nm = Unsqueeze (more, zero)\norder = Concat <axis = 0> (none, none, none, m, none, none, none, none)\n"
        "pairs = Reshape (order, by_two)\nturned = Slice (pairs, last, first, zero, last)\nt = Transpose (turned)\n"
        "pads = Reshape (t, flat)\np = Pad (q, pads)\ny = Relu (p)"
    )
    arrays = {"two": ints(2)[0], "seven": ints(7)[0], "zero": ints(0), "none": ints(0)}
    arrays.update(by_two=ints(-1, 2), last=ints(-1), first=ints(-(2**63)), flat=ints(-1))
    for rows, padded in ((9, True), (14, False)):
        found = same(graph(f"float[1,4,{rows},8] x", "float[1,4,h,8] y", body, **arrays), bits=True)
        assert found.ops == [*(["Conv"] if padded else []), "Relu"]
        assert "D1" in found.rules


@covers(2)
def test_a_mask_that_is_scattered_is_a_constant() -> None:
    """Behind sizes that are known; with updates that are added up it is left to TensorRT."""
    body = pair("x", "q") + (
        "shape = Shape <start = 2> (q)\nempty = ConstantOfShape (shape)\nmask = ScatterND KIND (empty, places, marks)\n"
        "y = Add (q, mask)"
    )
    places: np.ndarray = np.array([[[0, 1], [2, 3]], [[4, 4], [2, 3]]], np.int64)
    marks: np.ndarray = np.array([[1, 2], [3, 2]], np.float32)
    for kind, folded in (("", True), ('<reduction = "add">', False)):
        explicit = graph("float[1,2,5,6] x", "float[1,2,5,6] y", body.replace("KIND", kind), places=places, marks=marks)
        found = same(explicit, bits=True)
        assert found.ops == (["Add"] if folded else ["ScatterND", "Add"])


@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_have_the_sign_that_onnx_gives_them(fmod: int) -> None:
    numbers = [-7, -3, -2, 2, 3, 7]
    a, b = ints(*(x for x in numbers for _ in numbers)), ints(*numbers * len(numbers))
    text = f"shape = Shape (x)\nk = Identity (a)\nr = Mod <fmod = {fmod}> (k, b)\nd = Concat <axis = 0> (r, shape)\ny = Relu (x)"
    one = graph("float[1,4] x", "float[1,4] y, int64[n] d", text, a=a, b=b)
    want = onnx.reference.ReferenceEvaluator(one).run(["d"], {"x": np.zeros((1, 4), np.float32)})[0]
    assert TensorTypes(Graph.from_model(one)).integers()["d"].tolist() == want.tolist()


@pytest.mark.parametrize(
    "made",
    [
        case("random numbers", "r = RandomUniform <shape = [1, 2, 3, 4]> ()"),
        case(
            "control flow",
            "r = If (yes) <then_branch = t () => (float[1,2,3,4] a) {a = Identity (k)}, "
            "else_branch = e () => (float[1,2,3,4] b) {b = Neg (k)}>",
        ),
        case("operators outside ONNX", "r = other.Op (k)"),
    ],
)
def test_not(made: str) -> None:
    explicit = model(
        "g (float[1,2,3,4] x) => (float[1,2,3,4] y) {\n" + pair("x", "q") + made + "\ny = Add (q, r)\n}",
        domains=("other",),
        k=np.ones((1, 2, 3, 4), np.float32),
        yes=np.bool_(True),
        s=np.float32(0.1),
        z=np.int8(0),
    )
    found = both(explicit)
    assert made.split()[2].rpartition(".")[2] in found.ops and "D1" not in found.rules


@covers("results that are graph outputs")
def test_graph_outputs_stay() -> None:
    body = pair("x", "q") + "y = Relu (q)\nshape = Shape (q)"
    found = same(graph("float[1,2,3,4] x", "float[1,2,3,4] y, int64[4] shape", body))
    assert found.ops == ["Relu", "Shape"]
    assert not found.rules
