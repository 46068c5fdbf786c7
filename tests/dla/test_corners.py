"""Corners of the rewrites: why something stays, what else reads a tensor, and the scale of each new one."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.lab.laboratory import translate
from tests.dla.check import ORIN, SCALE, Pair, both, graph, ints, pair, proved, same, weights

X, Y = "float[1,4,6,6] x", "float[b,c,h,w] y"
W = weights(1, 4, 4, 1, 1)
END = "\n" + pair("m", "p") + "y = Relu (p)"


def of(body: str, given: str = X, out: str = Y, opset: int = 17, **arrays: np.ndarray) -> Pair:
    return same(graph(given, out, pair("x", "q") + body, opset=opset, **arrays), platform="jetpack-6.2")


@pytest.mark.parametrize(
    ("op", "opset", "expected"),
    [
        ("Mish", 18, {"m_sigmoid": 1, "m_rest": 2, "m_product": 1, "m_divisor": 2, "m_gate": 1}),
        ("Softsign", 17, {"m_size": 127 * SCALE, "m_divisor": 127 * SCALE + 1}),
    ],
)
def test_d7_the_range_of_each_part(op: str, opset: int, expected: dict[str, float]) -> None:
    """As amax: bounds of the function's parts, or what the input's range gives."""
    found = of(f"m = {op} (q)" + END, opset=opset)
    assert {name: found.rewritten.tensor_scales[name] * 127 for name in expected} == pytest.approx(expected, rel=1e-6)


def test_d7_no_quotient_before_8_6_12() -> None:
    found = both(graph(X, Y, pair("x", "q") + "m = Softsign (q)" + END), platform="jetpack-6.0")
    assert "D7" not in found.rules and "8.6.12" in found.reason("Softsign_m")


@pytest.mark.parametrize(
    ("body", "why", "arrays"),
    [
        ("a, n0, d = Split <axis = 1> (c, k)\ne = Relu (d)", "empty", {"k": ints(2, 0, 2)}),
        ("f = Add (c, v)\na, d = Split <axis = 1> (f, k)\ne = Relu (d)", "divided by channels",
         {"k": ints(2, 2), "v": weights(3, 6)}),
        ("r = Conv (q, u)\nf = Add (c, r)\na, d = Split <axis = 1> (f, k)\ne = Relu (d)", "another shape",
         {"k": ints(2, 2), "u": weights(2, 1, 4, 1, 1)}),
        ("f = Relu (c)\na, d = Split <axis = 1> (f, k)\ng = ReduceMax <axes = [1]> (c)\ne = Add (d, g)", "reads all",
         {"k": ints(2, 2)}),
    ],
)  # fmt: skip
def test_d3_not(body: str, why: str, arrays: dict[str, np.ndarray]) -> None:
    out = f"{Y}, float[b,c2,h,w] end"
    found = of(f"c = Conv (q, w)\n{body}\ny = Relu (a)\nend = Relu (e)", out=out, w=W, **arrays)
    assert "D3" not in found.rules and "Split" in found.ops
    assert why in found.rewritten.rewrites.reasons[found.rewritten.graph.producer["a"].name]


def test_d3_a_constant_of_one_channel_serves_every_part() -> None:
    body = "c = Conv (q, w)\nf = Add (c, v)\na, d = Split <axis = 1> (f, k)\ny = Relu (a)\nend = Relu (d)"
    for shape in ((1, 1, 1), (1, 1, 6, 6), (1,), ()):
        found = of(body, out=f"{Y}, float[b,c2,h,w] end", w=W, k=ints(1, 3), v=weights(5, *shape))
        assert found.rules == ["D3"]
        assert sorted({n.inputs[1] for n in found.rewritten.graph.nodes if n.op_type == "Add"}) == ["v"]


@pytest.mark.parametrize(
    ("line", "given", "why"),
    [
        ("m = ReduceMean <axes = [1]> (q)", "float[1,8193,1,1] x", "8192"),
        ("m = AveragePool <kernel_shape = [9, 9]> (q)", "float[1,4,h0,20] x", "known channels, H and W"),
        ("m = ReduceMean <axes = [0, 2]> (q)", X, "H and W only"),
        ("m = AveragePool <kernel_shape = [33, 3]> (q)", "float[1,2,40,20] x", "no Conv of the DLA"),
    ],
)
def test_d4_not(line: str, given: str, why: str) -> None:
    found = both(graph(given, Y, pair("x", "q") + line + END))
    assert "D4" not in found.rules and why in found.reason(found.rewritten.graph.producer["m"].name)


def test_d4_means_over_channels_that_lose_their_dimension() -> None:
    found = same(graph(X, "float[b,h,w] y", pair("x", "q") + "m = ReduceMean <axes = [1], keepdims = 0> (q)" + END))
    assert "D4" not in found.rules and "H and W only" in found.reason("ReduceMean_m")


def test_d17_the_trunk_of_a_tree_that_cannot_go_as_a_whole() -> None:
    """Two links before the branches become one, and so do the two of a branch; a branch that no layer can be keeps its links."""
    body = "t1 = Transpose <perm = [0, 2, 3, 1]> (q)\nt2 = Transpose <perm = [0, 2, 1, 3]> (t1)\n"
    body += "a = Reshape (t2, five)\nb = Transpose <perm = [0, 4, 3, 2, 1]> (a)\nm = Relu (b)\n"
    body += "c = Transpose <perm = [0, 3, 1, 2]> (t2)\nd = Transpose <perm = [0, 1, 3, 2]> (c)\nend = Relu (d)\ny = Relu (m)"
    out = "float[b,c,h,w,k] y, float[b,c2,h2,w2] end"
    found = of(body, "float[1,4,6,8] x", out, five=ints(0, 2, 4, 6, 4))
    moves = [(n.op_type, n.inputs[0], n.outputs[0]) for n in found.rewritten.graph.nodes if n.op_type != "Relu"]
    assert moves == [
        ("Transpose", "x", "t2"),
        ("Reshape", "t2", "a"),
        ("Transpose", "a", "b"),
        ("Transpose", "t2", "d"),
    ]


def test_d17_blocks_that_are_not_square() -> None:
    """Height and width in different shares: SpaceToDepth by 2 x 2 of 4 x 6, by 1 x 3 and by 2 x 1."""
    for rows, columns in ((2, 2), (1, 3), (2, 1), (1, 2)):
        high, wide = 4 // rows, 6 // columns
        to, back = ints(0, 3, high, rows, wide, columns), ints(0, 3 * rows * columns, high, wide)
        body = "a = Reshape (q, to)\nb = Transpose <perm = [0, 1, 3, 5, 2, 4]> (a)\nm = Reshape (b, back)" + END
        found = of(body, "float[1,3,4,6] x", to=to, back=back)
        conv = found.rewritten.graph.producer["m"]
        assert (conv.op_type, conv.get("kernel_shape"), conv.get("strides")) == (
            "Conv",
            [rows, columns],
            [rows, columns],
        )


def test_d4_sums_and_means_over_8192_channels() -> None:
    for op, factor in (("ReduceSum", 1.0), ("ReduceMean", 1 / 8192)):
        given = "(q, one)" if op == "ReduceSum" else "<axes = [1]> (q)"
        more = {"one": ints(1)} if op == "ReduceSum" else {}
        found = both(graph("float[1,8192,1,1] x", Y, pair("x", "q") + f"m = {op} {given}" + END, **more))
        (weight,) = (n.inputs[1] for n in found.rewritten.graph.nodes if n.op_type == "Conv")
        values = found.rewritten.graph.array(weight)
        assert (
            values is not None and values.shape == (1, 8192, 1, 1) and set(values.reshape(-1)) == {np.float32(factor)}
        )


def test_d8_the_sum_has_as_many_times_the_scale() -> None:
    for count in (2, 3, 5):
        found = of(f"a = Relu (q)\nm = Mean ({', '.join(['q', *['a'] * (count - 1)])})" + END)
        assert found.rewritten.tensor_scales["m_sum"] == pytest.approx(count * SCALE) and found.rules == ["D9"]


def test_d9_factors_of_the_scale() -> None:
    """Neg keeps the range; a quotient by one number divides it; one number a channel gives no scale."""
    for line, factor in (("m = Neg (q)", 1.0), ("m = Div (q, k)", 0.25), ("m = Div (q, v)", None)):
        more = {"k": np.float32(-4)} if ", k)" in line else {"v": weights(1, 4, 1, 1)} if ", v)" in line else {}
        found = same(graph(X, Y, pair("x", "q") + f"{line}\nn = Relu (m)\ny = Abs (n)", **more))
        scales = found.rewritten.tensor_scales
        assert found.rules == ["D9"] and "BatchNormalization" in found.ops
        assert scales.get("m") == (None if factor is None else pytest.approx(factor * SCALE))


def test_d16_every_link_goes_into_the_output() -> None:
    body = "c = Conv (q, w)\n" + pair("c", "p") + "f = Flatten (p)\ng = Unsqueeze (f, one)\ny = Reshape (g, all)"
    explicit = graph(X, "float[n] y", pair("x", "q") + body, w=W, one=ints(1), all=ints(-1))
    found = both(explicit, dla_rewrites=True, dla_output="4d")
    assert found.ops == ["Conv"] and found.rewritten.rewrites.tensors == {name: ["y"] for name in ("c", "f", "g")}
    assert [d.dim_value for d in found.rewritten.model.graph.output[0].type.tensor_type.shape.dim] == [1, 4, 6, 6]
    assert found.rewritten.tensor_scales["y"] == SCALE


LINEAR = {"w1": weights(3, 4, 6), "b1": weights(4, 6), "w2": weights(5, 6, 4)}


@pytest.mark.parametrize("view", ["Unsqueeze (r, one)", "Transpose <perm = [1, 0, 2]> (r)"])
def test_d18_a_view_that_others_read_too_stays_for_them(view: str) -> None:
    """Inside, its readers take the same [N, C, H, W] form; outside, they get it back."""
    body = f"m = MatMul (q, w1)\na = Add (m, b1)\nr0 = Relu (a)\nr1 = Sigmoid (r0)\nr = Relu (r1)\nv = {view}\nn = MatMul (v, w2)\no = Relu (n)\n"
    body += "t = ReduceMax <axes = [0]> (v)\nend = Abs (t)\ny = MatMul (o, w1)"
    rank = 4 if "Unsqueeze" in view else 3
    out = f"float[{','.join('bcde'[:rank])}] y, float[{','.join('fghi'[:rank])}] end"
    arrays = {**LINEAR, **({"one": ints(1)} if rank == 4 else {})}
    found = same(graph("float[1,5,4] x", out, pair("x", "q") + body, **arrays))
    assert "D18" in found.rules and "MatMul" not in found.ops and found.ops.count("Conv") == 3


@pytest.mark.parametrize(
    ("line", "lifted"),
    [
        ("c = Concat <axis = 1> (r, r)", False),
        ("c = Softmax <axis = 1> (r)", False),
        ("c, c0 = Split <axis = 1> (r, parts)", False),
        ("c = Slice (r, zero, three, one)", False),
        ("c = Slice (r, zero, three, two)", True),
        ("c = Slice (r, zero, three, minus)", True),
        ("c = Add (r, full)", True),
        ("c = Add (r, rows)", True),
        ("c = Add (r, one_row)", True),
        ("c = PRelu (r, slope)", False),
        ("c = LeakyRelu (r)", True),
    ],
)
@pytest.mark.parametrize("batch", ["1", "2"])
def test_d18_what_works_on_the_last_axis_is_lifted(line: str, lifted: bool, batch: str) -> None:
    arrays = {"parts": ints(2, 3), "zero": ints(0), "three": ints(3), "one": ints(1), "two": ints(2), "minus": ints(-1)}
    arrays.update(full=weights(6, 1, 5, 6), rows=weights(7, 5, 6), one_row=weights(8, 1, 6), slope=weights(9, 6))
    body = f"m = MatMul (q, w1)\na = Add (m, b1)\nr0 = Relu (a)\nr1 = Sigmoid (r0)\nr = Relu (r1)\n{line}\nd = Relu (c)\ny = Abs (d)"
    used = {name: value for name, value in arrays.items() if f", {name}" in line}
    found = same(graph("float[{N},5,4] x", "float[b,t,c] y", pair("x", "q") + body, batch, w1=W1, b1=B1, **used), batch)
    op = line.partition(" = ")[2].partition(" ")[0]
    assert "D18" in found.rules
    assert ("d_nchw" in found.rewritten.graph.producer) is lifted
    # rule D17 moves the Slice of another axis before the Transpose; rule D3 makes one of the last axis part of the Conv
    moved = op == "Slice" and not lifted
    assert ("D17" in found.rules) is moved and ("D3" in found.rules) is (op == "Slice" and lifted)
    for node in found.rewritten.graph.nodes:
        assert node.op_type != op or ("nchw" in node.inputs[0]) is (lifted or moved)


W1, B1 = LINEAR["w1"], LINEAR["b1"]


@pytest.mark.parametrize(
    ("opset", "given", "body", "rules", "inputs"),
    [
        (9, "1,5,4", "m = MatMul (x, w1)\nr = Relu (m)\ns = Slice <axes = [2], starts = [1], ends = [5]> (r)\nn = MatMul (s, w3)", {"D18", "D3"}, []),
        *((opset, "1,4,6,6", "r = Relu (x)\nn = Gather <axis = 2> (r, i)", {"D17"}, [count]) for opset, count in ((9, 1), (10, 4), (17, 4))),
    ],
)  # fmt: skip
def test_slices_as_the_opset_has_them(opset: int, given: str, body: str, rules: set[str], inputs: list[int]) -> None:
    arrays = {"w1": W1, "w3": LINEAR["w2"][:4].copy()} if "w1" in body else {"i": ints(2, 3, 4)}
    explicit = graph(f"float[{given}] x", f"float[{','.join('bcde'[: given.count(',') + 1])}] y", f"{body}\ny = Relu (n)", opset=opset, **arrays)  # fmt: skip
    plain, made = (
        translate(explicit, TranslateOptions(**ORIN, dla_rewrites=on), assume_scales=True) for on in (False, True)
    )
    assert rules <= {applied.rule for applied in proved(plain, made).rewrites.applied}
    assert [len(node.inputs) for node in made.graph.nodes if node.op_type == "Slice"] == inputs


def test_d18_not_where_the_dla_takes_it_already() -> None:
    found = same(
        graph("float[1,3,5,4] x", "float[b,h,w,c] y", pair("x", "q") + "m = MatMul (q, w1)\ny = Relu (m)", w1=W1)
    )
    assert found.ops == ["MatMul", "Relu"] and found.rules == []


def test_d21_not_where_the_dla_takes_it_already() -> None:
    found = of("m = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (q, w)" + END, w=weights(2, 4, 3, 2, 2))
    assert found.ops == ["ConvTranspose", "Relu"] and found.rules == []


@pytest.mark.parametrize(("size", "made"), [("1,4", (1, 2, 3, 4)), ("4,1", (1, 2, 4, 7)), ("1,1", (1, 2, 5, 6))])
def test_d12_linear_along_one_pixel_only_repeats_it(size: str, made: tuple[int, ...]) -> None:
    found = of('m = Resize <mode = "linear"> (q, , , sizes)' + END, f"float[1,2,{size}] x", sizes=ints(*made))
    (node,) = [node for node in found.rewritten.graph.nodes if node.op_type == "Resize"]
    assert (node.get("mode"), found.gpu()[1]) == ("nearest", [])


@pytest.mark.parametrize(
    "line",
    ["GlobalAveragePool (q)", "ReduceMean <axes = [2, 3]> (q)", "ReduceMean <axes = [1]> (q)", "GlobalMaxPool (q)"],
)
@pytest.mark.parametrize("size", ["1,4,0,8", "1,0,4,4"])
def test_a_tensor_without_values_is_no_image(line: str, size: str) -> None:
    explicit = graph(f"float[{size}] x", Y, f"{pair('x', 'q')}m = {line}\ny = Relu (m)")
    assert not both(explicit).rules


def test_d17_indices_that_are_no_integers() -> None:
    body = pair("x", "q") + "g = Gather <axis = 1> (q, i)\ny = Transpose <perm = [0, 1, 3, 2]> (g)"
    made = translate(graph(X, Y, body, i=np.array([0.0, 1.0], np.float32)), TranslateOptions(**ORIN, dla_rewrites=True))
    assert not made.rewrites.applied
