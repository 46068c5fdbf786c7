"""Rule D17: Reshapes and Transposes in a row become what they come to."""

from __future__ import annotations

import itertools
import re
from unittest import mock

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.translation.passes import pipeline
from qdq_translator.translation.planning import regions
from tests.conftest import DATA, PLAIN_PIPELINE
from tests.dla.check import BATCHES, SCALE, Pair, both, case, covers, graph, ints, pair, same, weights

TO = {
    "five": ints(0, 2, 4, 6, 4),
    "back": ints(0, 8, 6, 4),
    "six": ints(0, 2, 2, 2, 6, 4),
    "big": ints(0, 2, 12, 8),
    "blocks": ints(0, 8, 3, 2, 2, 2),
    "small": ints(0, 32, 3, 2),
    "three": ints(0, 8, 24),
    "rows": ints(-1, 6, 4),
    "one": ints(1),
}
SHUFFLE = "a = Reshape (q, five)\nb2 = Transpose <perm = [0, 2, 1, 3, 4]> (a)\nc = Reshape (b2, back)\n"


def chain(body: str, batch: str = "1", out: str = "float[b,c,h,w] y", **more: np.ndarray):  # type: ignore[no-untyped-def]
    words = set(re.findall(r"\w+", body))
    used = {name: values for name, values in {**TO, **more}.items() if name in words}
    return graph("float[{N},8,6,4] x", out, pair("x", "q") + body, batch, **used)


@covers(1, 2, 3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("body", "ops"),
    [
        ("a = Squeeze (u, one)\nc = Unsqueeze (a, one)\n", []),  # case 1
        ("a = Transpose <perm = [0, 2, 3, 1]> (u)\nb2 = Flatten (a)\nd = Reshape (b2, nhwc)\n"
         "c = Transpose <perm = [0, 3, 1, 2]> (d)\n", []),
        ("a = Reshape (u, three)\nb2 = Flatten (a)\nc = Reshape (b2, two)\n", ["Reshape"]),  # case 2
        ("a = Transpose <perm = [0, 2, 3, 1]> (u)\nb2 = Unsqueeze (a, one)\nd = Transpose <perm = [0, 1, 4, 3, 2]> (b2)\n"
         "c = Squeeze (d, one)\n", ["Transpose"]),  # case 3
    ],
    ids=["nothing", "nothing behind NHWC", "one Reshape", "one Transpose"],
)  # fmt: skip
def test_cases_1_to_3(body: str, ops: list[str], batch: str) -> None:
    first = "u = MaxPool <kernel_shape = [8, 1]> (q)\n" if "Squeeze" in body and not ops else "u = Relu (q)\n"
    if first.startswith("u = MaxPool"):
        first = "u = Conv <kernel_shape = [1, 1]> (q, w)\n"
    explicit = chain(
        first + body + "y = Relu (c)", batch, w=weights(1, 1, 8, 1, 1), nhwc=ints(0, 6, 4, 8), two=ints(0, 2, 12, 8)
    )
    found = same(explicit, batch, bits=True, relative=0)
    moves = [op for op in found.ops if op in ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")]
    assert moves == ops and "D17" in found.rules and not found.gpu()[1]


@covers(4, 5)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("body", "op", "shape"),
    [
        (SHUFFLE, "Conv", (8, 8, 1, 1)),  # case 4: ShuffleNet
        ("a = Reshape (q, blocks)\nb2 = Transpose <perm = [0, 1, 3, 5, 2, 4]> (a)\nc = Reshape (b2, small)\n",
         "Conv", (32, 8, 2, 2)),
        ("a = Reshape (q, blocks)\nb2 = Transpose <perm = [0, 3, 5, 1, 2, 4]> (a)\nc = Reshape (b2, small)\n",
         "Conv", (32, 8, 2, 2)),
        ("a = Reshape (q, six)\nb2 = Transpose <perm = [0, 1, 4, 2, 5, 3]> (a)\nc = Reshape (b2, big)\n",
         "ConvTranspose", (8, 2, 2, 2)),  # case 5: PixelShuffle, then DepthToSpace in mode DCR
        ("a = Reshape (q, six)\nb2 = Transpose <perm = [0, 3, 4, 1, 5, 2]> (a)\nc = Reshape (b2, big)\n",
         "ConvTranspose", (8, 2, 2, 2)),
    ],
)  # fmt: skip
def test_cases_4_and_5(body: str, op: str, shape: tuple[int, ...], batch: str) -> None:
    found = same(chain(body + "y = Relu (c)", batch), batch, bits=True, relative=0)
    assert found.ops == [op, "Relu"] and not found.gpu()[1]
    weight = next(n for n in found.rewritten.graph.nodes if n.op_type == op).inputs[1]
    values = found.rewritten.graph.array(weight)
    assert (
        values is not None
        and values.shape == shape
        and values.sum() == 8 * 6 * 4 / np.prod({"Conv": (6 // shape[2], 4 // shape[3]), "ConvTranspose": (6, 4)}[op])
    )
    assert found.rewritten.tensor_scales["c"] == SCALE


def test_a_shuffle_and_its_split_become_a_conv_each() -> None:
    """As rule D3 makes them of any Conv in front of a Split; the Slices, which run in FP16 only, are gone."""
    body = SHUFFLE + pair("c", "p") + "l, r = Split <axis = 1> (p, halves)\n" + pair("l", "lq") + pair("r", "rq")
    found = same(chain(body + "y = Add (lq, rq)", halves=ints(4, 4)), bits=True, relative=0)
    assert found.ops == ["Conv", "Conv", "Add"] and found.rules == ["D17", "D3"]


def test_scales_between_go_to_the_end() -> None:
    body = (
        "a = Reshape (q, five)\n"
        + pair("a", "p")
        + SHUFFLE.replace("a = Reshape (q, five)\n", "").replace("(a)", "(p)")
    )
    found = same(chain(body + "y = Relu (c)"), bits=True, relative=0)
    assert found.rewritten.tensor_scales["c"] == SCALE and found.rewritten.rewrites.tensors["a"] == ["c"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        case(
            "other orders",
            "a = Reshape (q, six)\nb2 = Transpose <perm = [0, 3, 2, 1, 5, 4]> (a)\nc = Reshape (b2, back)\ny = Relu (c)",
            "no Conv",
        ),
        case(
            "between different scales of the model's own",
            "a = Reshape (q, five)\n" + pair("a", "p", "s2") + "c = Reshape (p, back)\ny = Relu (c)",
            "different scales",
        ),
        case(
            "case 1 to a graph output from a graph input or from a tensor that others read",
            "a = Reshape (q, three)\ny = Reshape (a, back)",
            "graph output",
        ),
    ],
)
def test_not(body: str, why: str) -> None:
    found = same(chain(body, s2=np.float32(SCALE / 2), back=ints(1, 8, 6, 4)))
    assert "D17" not in found.rules
    assert any(why in row.why for row in found.rewritten.rewrites.left(found.rewritten.dla))


@covers("tensors in between that others read", "graph outputs in between")
@pytest.mark.parametrize("other", ["o = Relu (a)", ""])
def test_not_where_others_read_in_between(other: str) -> None:
    read = "o" if other else "a"
    found = both(chain(f"{SHUFFLE}y = Relu (c)\n{other}", out=f"float[b,c,h,w] y, float[b,g,c,h,w] {read}"))
    assert "Conv" not in found.ops and "Transpose" in found.ops


def blocks(op: str, size: int, channels: int = 2):  # type: ignore[no-untyped-def]
    """SpaceToDepth ("Conv") or PixelShuffle ("ConvTranspose") by blocks of `size`, from two rows or columns of blocks."""
    square = size * size
    if op == "Conv":
        shape, order = f"1,{channels},{2 * size},{size}", "0, 1, 3, 5, 2, 4"
        to, back = ints(0, channels, 2, size, 1, size), ints(0, square * channels, 2, 1)
    else:
        shape, order = f"1,{square * channels},1,2", "0, 1, 4, 2, 5, 3"
        to, back = ints(0, channels, size, size, 1, 2), ints(0, channels, size, 2 * size)
    body = pair("x", "q") + f"a = Reshape (q, to)\nb2 = Transpose <perm = [{order}]> (a)\nc = Reshape (b2, back)\n"
    return graph(f"float[{shape}] x", "float[b,c,h,w] y", body + "y = Relu (c)", to=to, back=back)


@covers("blocks or steps of more than 8 (22 in case 5)")
@pytest.mark.parametrize(("op", "most"), [("Conv", 8), ("ConvTranspose", 22)])
def test_not_with_larger_blocks(op: str, most: int) -> None:
    assert same(blocks(op, most), bits=True, relative=0).ops == [op, "Relu"]
    assert "D17" not in same(blocks(op, most + 1), bits=True, relative=0).rules


@covers("channels above 8192")
def test_not_with_more_channels() -> None:
    body = pair("x", "q") + SHUFFLE + "y = Relu (c)"
    more = {"five": ints(0, 2, 4097, 1, 2), "back": ints(0, 8194, 1, 2)}
    found = same(graph("float[1,8194,1,2] x", "float[b,c,h,w] y", body, **more))
    assert "D17" not in found.rules


@covers("sizes that are not known (the batch size may be)")
def test_not_with_unknown_sizes() -> None:
    body = pair("x", "q") + SHUFFLE + "y = Relu (c)"
    more = {"five": ints(0, 2, 4, -1, 4), "back": ints(0, 8, -1, 4)}
    found = both(graph("float[1,8,h,4] x", "float[b,c,h2,w] y", body, **more))
    assert "D17" not in found.rules and "not known" in found.reason(found.rewritten.graph.producer["c"].name)


@covers("cases 4 to 8 where the DLA supports every one of them")
def test_not_where_the_dla_takes_it() -> None:
    body = "a = Transpose <perm = [0, 2, 3, 1]> (q)\nc = Reshape (a, big)\ny = Relu (c)"
    assert "D17" not in both(chain(body)).rules


def attention(batch: str = "1", heads: int = 2, split: bool = False):  # type: ignore[no-untyped-def]
    """Queries, keys and values out of one tensor [N, C, T, 1], as PyTorch's attention packs them."""
    tokens, size = 6, 4
    channels = 3 * heads * size
    pick = "".join(f"{name} = Gather <axis = 0> (m, {i})\n" for i, name in enumerate("abc"))
    if split:
        pick = "s0, s1, s2 = Split <axis = 0> (m, ones)\n" + "".join(
            f"{name} = Squeeze (s{i}, first)\n" for i, name in enumerate("abc")
        )
    body = (
        pair("x", "q") + "u = Relu (q)\nv = Transpose <perm = [0, 2, 3, 1]> (u)\nt = Reshape (v, packed)\n"
        "m = Transpose <perm = [2, 0, 3, 1, 4]> (t)\n"
        + pick.replace(", 0)", ", i0)").replace(", 1)", ", i1)").replace(", 2)", ", i2)")
        + "k = Transpose <perm = [0, 1, 3, 2]> (b)\nra = Relu (a)\nrk = Relu (k)\nrc = Relu (c)\n"
        "w = MatMul (ra, rk)\ny = MatMul (w, rc)"
    )
    indices = {f"i{i}": np.int64(i) for i in range(3)} if not split else {"ones": ints(1, 1, 1), "first": ints(0)}
    more = {"packed": ints(-1, tokens, 3, heads, size), **indices}
    return graph(f"float[{{N}},{channels},{tokens},1] x", "float[b,h,t,d] y", body, batch, **more)


@covers(6)
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("batch", ["1", "3"])
def test_case_6_the_heads_of_an_attention(batch: str, split: bool) -> None:
    found = same(attention(batch, split=split), batch, bits=True)
    assert found.gpu()[1] == ["MatMul", "MatMul"] and len(found.gpu()[0]) > 6
    assert [found.ops.count(op) for op in ("Slice", "Reshape", "Transpose")] == [3, 3, 2]  # the keys' own undoes theirs
    assert len(found.ops) == 8 + 4 + 2


@covers(7)
@pytest.mark.parametrize("batch", ["1", "3"])
@pytest.mark.parametrize(("body", "rank", "ops"), [
    ("a = Reshape (q, three)\ng = Gather <axis = 2> (a, last)", 2, ["Slice", "Reshape"]),
    ("a = Squeeze (q, two)\nb2 = Slice (a, one, four, two)\ng = Flatten (b2)", 2, ["Slice", "Reshape"]),
    ("a = Squeeze (q, two)\nt = Transpose <perm = [0, 2, 1]> (a)\ng = Gather <axis = 1> (t, first)", 2, ["Slice", "Reshape"]),
])  # fmt: skip
def test_case_7_a_box_of_a_sequence(body: str, rank: int, ops: list[str], batch: str) -> None:
    """The last step, several steps, and the first step of a sequence with its steps first."""
    arrays = {"three": ints(0, 6, 9), "two": ints(2), "one": ints(1), "four": ints(4)}
    used = {name: value for name, value in arrays.items() if f", {name}" in body}
    used.update({name: np.array(at, np.int64) for name, at in (("last", -1), ("first", 0)) if f", {name})" in body})
    explicit = graph("float[{N},6,1,9] x", "float[b,k] y", pair("x", "q") + body + "\ny = Relu (g)", batch, **used)
    found = same(explicit, batch, relative=0)
    assert found.ops == [*ops, "Relu"] and "D17" in found.rules


@covers(7)
@pytest.mark.parametrize(("back", "ops"), [(False, ["Reshape", "Transpose"]), (True, ["Transpose", "Reshape"])])
def test_case_7(back: bool, ops: list[str]) -> None:
    body = "a = Reshape (q, three)\nb2 = Reshape (a, four)\nc = Transpose <perm = [0, 3, 1, 2]> (b2)\ny = Relu (c)"
    shape = "48,4"
    if back:
        body = "a = Transpose <perm = [0, 2, 3, 1]> (q)\nb2 = Unsqueeze (a, one)\nc = Reshape (b2, three)\ny = Relu (c)"
        shape = "4,6,8"
    more = {"three": ints(0, 12, 16) if not back else ints(0, 48, 4), "four": ints(0, 6, 8, 4), "one": ints(1)}
    used = {name: value for name, value in more.items() if f", {name})" in body}
    out = "float[b,t,k] y" if back else "float[b,c,h,w] y"
    found = same(graph(f"float[3,{shape}] x", out, pair("x", "q") + body, **used), "3", relative=0)
    assert found.ops == [*ops, "Relu"] and "D17" in found.rules


@pytest.mark.parametrize(
    ("axis", "indices", "op"),
    [(1, [2, 3, 4], "Slice"), (1, [5, 0, 5, 2], "Conv"), (2, [1, 2], "Slice"), (1, [-1], "Slice")],
)
def test_gather_alone(axis: int, indices: list[int], op: str) -> None:
    body = pair("x", "q") + f"u = Relu (q)\ng1 = Gather <axis = {axis}> (u, i)\ny = Relu (g1)"
    found = same(graph("float[2,8,6,4] x", "float[b,c,h,w] y", body, i=ints(*indices)), "2", bits=True, relative=0)
    assert found.ops == ["Relu", op, "Relu"] and found.gpu() == (["Gather"], [])


@pytest.mark.parametrize("size", ["1,4", "6,1", "1,1"])
def test_gather_of_channels_without_rows_or_columns(size: str) -> None:
    body = pair("x", "q") + "u = Relu (q)\ng1 = Gather <axis = 1> (u, i)\ny = Relu (g1)"
    found = same(
        graph(f"float[2,8,{size}] x", "float[b,c,h,w] y", body, i=ints(5, 0, 5, 2)), "2", bits=True, relative=0
    )
    assert found.ops == ["Relu", "Conv", "Relu"]
    (weight,) = (n.inputs[1] for n in found.rewritten.graph.nodes if n.op_type == "Conv")
    np.testing.assert_array_equal(found.rewritten.graph.array(weight)[:, :, 0, 0], np.eye(8)[[5, 0, 5, 2]])


def test_a_branch_that_is_nothing_and_a_graph_output_keeps_its_name() -> None:
    body = "u = Relu (q)\na = Transpose <perm = [0, 2, 3, 1]> (u)\ny = Transpose <perm = [0, 3, 1, 2]> (a)\n"
    body += "b2 = Reshape (a, rest)\nv = Relu (b2)"
    found = same(chain(body, out="float[b,c,h,w] y, float[b,r,k] v", rest=ints(0, 4, 48)), bits=True, relative=0)
    assert list(found.rewritten.graph.outputs) == ["y", "v"] and found.ops == [
        "Relu",
        *["Transpose"] * 2,
        "Reshape",
        "Relu",
    ]


def test_a_slice_of_nothing_is_left() -> None:
    body = pair("x", "q") + "a = Slice (q, two, two, two)\nb2 = Transpose <perm = [0, 3, 2, 1]> (a)\ny = Relu (b2)"
    found = both(graph("float[1,8,6,4] x", "float[b,w,h,c] y", body, two=ints(2)))
    assert found.ops == ["Slice", "Transpose", "Relu"]


@pytest.mark.parametrize(
    ("reader", "out", "left"),
    [("v = Relu (b2)", "v", 1), ("", "b2", 1), ("", "", 1), ("v = Transpose <perm = [0, 2, 3, 1]> (b2)", "v", 0)],
)
def test_a_split_stays_where_others_read_a_part_of_it(reader: str, out: str, left: int) -> None:
    """Also where one is a graph output, or nobody reads it."""
    body = pair("x", "q") + f"u = Relu (q)\na, b2 = Split <axis = -4> (u)\n{reader}\n"
    body += "c = Transpose <perm = [0, 2, 3, 1]> (a)\nd = Reshape (c, flat)\ny = Relu (d)"
    outs = "float[b,t,h,w] y" + (f", float[b,c,r,k] {out}" if out else "")
    found = same(graph("float[2,8,6,4] x", outs, body, "2", flat=ints(1, 4, 6, 8)))
    assert found.ops.count("Split") == left and found.ops.count("Slice") == 2 * (1 - left)


@covers(8)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("axis", "indices"), [(2, (3, 1)), (3, (3, 2, 1, 0)), (-2, (5, 4, 3, 2, 1, 0, 0)), (1, (7, 0))]
)
def test_case_8(axis: int, indices: tuple[int, ...], batch: str) -> None:
    body = pair("x", "q") + f"g1 = Gather <axis = {axis}> (q, i)\n" + pair("g1", "g2") + "y = Relu (g2)"
    found = same(graph("float[{N},8,6,4] x", "float[b,c,h,w] y", body, batch, i=ints(*indices)), batch, bits=True)
    assert found.rules == ["D17"] and found.gpu() == (["Gather"], [])


@covers(8)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_8_a_flip_within_a_chain(batch: str) -> None:
    """As x[..., ::-1] of other than four dimensions is written."""
    body = (
        pair("x", "q")
        + "a = Reshape (q, five)\nf = Slice (a, last, first, axis, step)\nb = Reshape (f, four)\ny = Relu (b)"
    )
    more = {"five": ints(0, 8, 6, 2, 2), "last": ints(-1), "first": ints(-100), "axis": ints(2), "step": ints(-1)}
    found = same(
        graph("float[{N},8,6,4] x", "float[b,c,h,w] y", body, batch, four=ints(0, 8, 6, 4), **more), batch, bits=True
    )
    assert "Slice" not in found.ops and found.gpu()[1] == []


@covers(8)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axes", [(1,), (2,), (3,), (2, 3)])
def test_a_flip_alone(axes: tuple[int, ...], batch: str) -> None:
    body = pair("x", "q") + "f = Slice (q, last, first, axis, step)\n" + pair("f", "g1") + "y = Relu (g1)"
    count = len(axes)
    more = {
        "last": ints(*[-1] * count),
        "first": ints(*[-100] * count),
        "axis": ints(*axes),
        "step": ints(*[-1] * count),
    }
    found = same(graph("float[{N},8,6,4] x", "float[b,c,h,w] y", body, batch, **more), batch, bits=True, relative=0)
    assert "Slice" not in found.ops and found.gpu() == (["Slice"], [])


def test_a_flip_of_the_batch_or_with_five_dimensions_is_left() -> None:
    for axis, shape, out in ((0, "3,8,6,4", "a,b,c,d"), (2, "1,8,6,2,2", "a,b,c,d,e")):
        body = pair("x", "q") + "f = Slice (q, last, first, axis, step)\ny = Relu (f)"
        more = {"last": ints(-1), "first": ints(-100), "axis": ints(axis), "step": ints(-1)}
        assert "Slice" in both(graph(f"float[{shape}] x", f"float[{out}] y", body, **more)).gpu()[1]


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (2, 2, 1), (3, 2, 1), (2, 1, 3)])
def test_case_4_windows_as_unfold_writes_them(kernel: int, stride: int, dilation: int, batch: str) -> None:
    """torch.nn.Unfold: a Gather of rows and of columns with two-dimensional indices."""
    counts = [(size - dilation * (kernel - 1) - 1) // stride + 1 for size in (7, 9)]
    rows, columns = (
        np.array([[tap * dilation + at * stride for at in range(count)] for tap in range(kernel)]) for count in counts
    )
    body = pair("x", "q") + "a = Gather <axis = 2> (q, r)\nb2 = Gather <axis = 4> (a, k)\n"
    body += "c = Transpose <perm = [0, 1, 2, 4, 3, 5]> (b2)\nd = Reshape (c, flat)\ne = Reshape (d, four)\ny = Relu (e)"
    channels = 4 * kernel * kernel
    more = {"r": rows, "k": columns, "flat": ints(0, channels, -1), "four": ints(0, channels, *counts)}
    found = same(graph("float[{N},4,7,9] x", "float[b,c,h,w] y", body, batch, **more), batch, relative=0)
    assert found.ops == ["Conv", "Relu"] and not found.gpu()[1]


@pytest.mark.parametrize("batch", BATCHES)
def test_case_1_to_a_graph_output_gives_it_the_name(batch: str) -> None:
    body = "u = Relu (q)\na = Transpose <perm = [0, 2, 3, 1]> (u)\ny = Transpose <perm = [0, 3, 1, 2]> (a)"
    found = same(chain(body, batch), batch, relative=0)
    assert found.ops == ["Relu"] and found.rewritten.rewrites.tensors == {"u": ["y"], "a": ["y"]}
    assert "y" not in found.rewritten.tensor_scales


def test_what_no_runtime_would_run_is_left() -> None:
    """An axis before the first; sizes that a graph output claims and that nothing can have."""
    body = "u = Relu (q)\na, b2 = Split <axis = -9> (u)\nc = Transpose <perm = [0, 2, 3, 1]> (a)\n"
    body += "d = Transpose <perm = [0, 2, 3, 1]> (b2)\ny = Add (c, d)"
    split = graph("float[{N},8,6,4] x", "float[b,c,h,w] y", pair("x", "q") + body, "N")
    body = pair("x", "q") + "r = Transpose <perm = [0, 2, 3, 1]> (q)\nv = Reshape (r, to)\ny = Relu (v)"
    claimed = graph("float[1,8,6,4] x", "float[b,c,h,w] y", body, "1", to=ints(1, 4, 6, 8))
    claimed.graph.output.append(onnx.helper.make_tensor_value_info("v", 6, [-1, 0, 2**40, 7, 2**40]))
    for explicit, kept in ((split, "Split"), (claimed, "Reshape")):
        made = translate(explicit, TranslateOptions(target="orin-dla", dla_rewrites=True))
        assert kept in [node.op_type for node in made.graph.nodes]


def moved_by_chance(seed: int) -> tuple[str, dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Two to four moves of [3, 8, 6, 4], along every axis but the first: their text and constants, and what they make of the
    numbers 0, 1, 2, ..."""
    chance = np.random.default_rng(seed)
    start = np.arange(3 * 8 * 6 * 4).reshape(3, 8, 6, 4)
    values, lines, more, current = start, [], {}, "u"
    for number in range(int(chance.integers(2, 5))):
        kind = chance.choice(["Transpose", "Reshape", "Slice", "Gather"], p=[0.4, 0.4, 0.1, 0.1])
        name, given = f"m{number}", f"k{number}"
        axis = int(chance.integers(1, values.ndim))
        if kind == "Transpose":
            order = [0, *(1 + chance.permutation(values.ndim - 1))]
            lines.append(f"{name} = Transpose <perm = [{', '.join(map(str, order))}]> ({current})")
            values = values.transpose(order)
        elif kind == "Reshape":
            primes = [2] * 6 + [3] + [5, 7]
            left, sizes = values[0].size, [1] * int(chance.integers(2, 5))
            for prime in primes:
                if left % prime == 0:
                    left //= prime
                    sizes[int(chance.integers(len(sizes)))] *= prime
            more[given] = ints(0, *sizes[:-1], -1)
            lines.append(f"{name} = Reshape ({current}, {given})")
            values = values.reshape(3, *sizes[:-1], -1)
        elif kind == "Slice":
            begin, step = int(chance.integers(0, (values.shape[axis] + 1) // 2)), int(chance.integers(1, 3))
            more.update({f"{given}b": ints(begin), f"{given}e": ints(2**40), f"{given}a": ints(axis - values.ndim)})
            more[f"{given}s"] = ints(step)
            lines.append(f"{name} = Slice ({current}, {given}b, {given}e, {given}a, {given}s)")
            values = values[(slice(None),) * axis + (slice(begin, None, step),)]
        else:
            indices = chance.integers(-values.shape[axis], values.shape[axis], 2)
            more[given] = indices
            lines.append(f"{name} = Gather <axis = {axis}> ({current}, {given})")
            values = np.take(values, indices, axis)
        current = name
    return "\n".join([*lines, f"y = Relu ({current})"]), more, start, values


def came_to(seed: int) -> tuple[Pair, np.ndarray, np.ndarray]:
    body, more, start, moved = moved_by_chance(seed)
    batch = BATCHES[seed % 3]
    explicit = graph(
        "float[{N},8,6,4] x",
        f"float[{','.join('btuvwz'[: moved.ndim])}] y",
        pair("x", "q") + "u = Conv <kernel_shape = [1, 1]> (q, w)\n" + body,
        batch,
        w=weights(1, 8, 8, 1, 1),
        **more,
    )
    return same(explicit, batch, bits=True, relative=0), start, moved


def line_of(found: Pair) -> str:
    return " ".join([*found.ops, "| GPU:", *found.gpu()[1]])


COUNT = 150
MOVES = DATA / "moves.txt"
"""What D17 makes of each of them: `python -m tests.records --write` writes it anew."""


@pytest.mark.parametrize("seed", range(COUNT))
def test_chains_of_any_kind(seed: int) -> None:
    """The same bits; nothing, one Reshape or one Transpose wherever that is enough; and what it was before."""
    found, start, moved = came_to(seed)
    ops = [op for op in found.ops if op not in ("Conv", "ConvTranspose", "Relu")]
    allowed: list[list[str]] = []
    if start.shape == moved.shape and np.array_equal(start, moved):
        allowed = [[]]
    elif start.size == moved.size:
        orders = itertools.permutations(range(1, start.ndim)) if start.ndim == moved.ndim else ()
        if np.array_equal(start.reshape(-1), moved.reshape(-1)):
            allowed.append(["Reshape"])
        if any(np.array_equal(start.transpose(0, *order), moved) for order in orders):
            allowed.append(["Transpose"])
    assert not allowed or ops in allowed
    assert line_of(found) == MOVES.read_text(encoding="utf-8").splitlines()[seed]


def write_record() -> None:
    alone = mock.patch.object(regions, "placed", lambda *given: None)
    with mock.patch.object(pipeline, "PIPELINE", PLAIN_PIPELINE), alone:  # as conftest.py has it
        found = "".join(f"{line_of(came_to(seed)[0])}\n" for seed in range(COUNT))
    MOVES.write_text(found, encoding="utf-8")
