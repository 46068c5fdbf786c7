"""Rule D28: an LSTM, GRU or RNN of a few steps becomes the layers of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from tests.dla.check import ORIN, both, case, covers, decibels, feed_of, graph, ints, pair, same, weights

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SIZE, WIDTH = 6, 5
STEPS = "more than 16 steps, directions included"
OTHER = "lengths of sequences, peepholes, a clip, coupled gates or other activations than the default"


def layer(
    op: str,
    steps: int = 2,
    batch: str = "1",
    way: str = "forward",
    states: str = "none",
    bias: bool = True,
    quantized: bool = False,
    **more: Any,
) -> onnx.ModelProto:
    """A Conv whose output [N, C, 1, T] an exporter hands over to the layer as [T, N, C], and whose output is made [N, C, 1, T] again.
    states: 'inputs', 'zeros' or 'none'. quantized: what the Conv makes is."""
    count, gates = 2 if way == "bidirectional" else 1, GATES[op]
    arrays = {
        "w": weights(1, WIDTH, WIDTH, 1, 1),
        "wx": weights(2, count, gates * SIZE, WIDTH) * 3,
        "wh": weights(3, count, gates * SIZE, SIZE) * 3,
        "rows": ints(2),
        "flat": ints(steps, -1, count * SIZE),
    }
    names = ["wx", "wh"]
    if bias:
        arrays["bias"] = weights(4, count, 2 * gates * SIZE)
    names.append("bias" if bias else "")
    inputs, given = f"float[{{N}},5,1,{steps}] x", 1 if op != "LSTM" else 2
    if states == "inputs":
        inputs += "".join(f", float[{{N}},{count * SIZE}] i{number}" for number in range(given))
        arrays["apart"] = ints(0, count, SIZE)
    if states == "zeros":
        arrays.update({f"s{number}": np.zeros((count, int(batch), SIZE), np.float32) for number in range(given)})
    names += ["", *(f"s{number}" for number in range(given))] if states != "none" else []
    attributes = "".join(f", {key} = {value}" for key, value in more.items())
    outs = ", ".join(["r", "h", "c"][: given + 1])
    body = pair("x", "q") + "a = Conv <kernel_shape = [1, 1]> (q, w)\n" + pair("a", "a0") * quantized
    body += f"b1 = Squeeze ({'a0' if quantized else 'a'}, rows)\n"
    body += "b2 = Transpose <perm = [2, 0, 1]> (b1)\n"
    for number in range(given if states == "inputs" else 0):
        body += f"j{number} = Reshape (i{number}, apart)\ns{number} = Transpose <perm = [1, 0, 2]> (j{number})\n"
    body += f'{outs} = {op} <hidden_size = {SIZE}, direction = "{way}"{attributes}> (b2, {", ".join(names)})\n'
    body += "d = Transpose <perm = [0, 2, 1, 3]> (r)\ne = Reshape (d, flat)\nf = Transpose <perm = [1, 2, 0]> (e)\n"
    body += "g1 = Unsqueeze (f, rows)\ny = Relu (g1)"
    outputs = "float[b,k,o,t] y" + "".join(f", float[d{n},b,j] {n}" for n in ["h", "c"][:given])
    return graph(inputs, outputs, body, batch, **arrays)


@pytest.mark.parametrize("op", GATES)
def test_precision_and_weights(op: str) -> None:
    found = same(layer(op, 4, states="inputs"), infer_concat_scales=True, infer_mul_scales=True)
    made = next(a for a in found.rewritten.rewrites.applied if a.rule == "D28").after
    computed = [node for node, name in made if name not in ("Reshape", "Transpose", "Slice")]
    assert {name for node in computed for name in node.outputs}.isdisjoint(found.rewritten.tensor_scales)
    convs = [node for node, name in made if name == "Conv"]
    assert len({node.inputs[1] for node in convs}) * 4 == len(convs)
    assert decibels(found.rewritten, feed_of(found.rewritten, "1", 3)) > 25


def total(model: onnx.ModelProto, **options: Any) -> tuple[float, list[str]]:
    """Estimated milliseconds, and the operators."""
    made = translate(model, TranslateOptions(**ORIN, **options))
    assert made.costs is not None and made.costs.ends[1] is not None
    return made.costs.ends[1], [node.op_type for node in made.graph.nodes]


def test_few_steps_pay_and_many_are_left_by_rule_r1() -> None:
    one, many = layer("LSTM", 1, states="inputs"), layer("LSTM", 16, states="inputs")
    assert total(one, dla_rewrites=True, dla_output="4d")[0] < total(one)[0] - 0.5
    (kept, ops), (forced, others) = (total(many, dla_rewrites=word) for word in (True, "force"))
    assert kept < forced and "LSTM" in ops and "LSTM" not in others


@pytest.mark.parametrize(("change", "why"), [
    case(STEPS, {"steps": 17}, "17 steps"),
    case(STEPS, {"steps": 9, "way": "bidirectional"}, "18 steps"),
    case(OTHER, {"clip": 3.0}, "a clip"),
    case(OTHER, {"input_forget": 1}, "coupled gates"),
    case(OTHER, {"activations": '["Sigmoid", "Relu", "Tanh"]'}, "other activations"),
])  # fmt: skip
def test_left(change: dict[str, Any], why: str) -> None:
    found = both(layer("LSTM", **{"steps": 2, **change}))
    assert "LSTM" in found.gpu()[1] and why in found.reason(next(n.name for n in found.plain.graph.of("LSTM")))


BARE = pair("x", "q") + "y, h = LSTM <hidden_size = 6> (q, w, r"


@pytest.mark.parametrize(("inputs", "body", "why"), [
    case("an unknown number of steps", "float[t,1,5] x", f"{BARE})", "number of steps"),
    case("weights that are not constant", "float[2,1,5] x, float[1,24,6] r", f"{BARE})", "not constant"),
    case(OTHER, "float[2,1,5] x", f"{BARE}, , n)", "sequence lengths"),
    case(OTHER, "float[2,1,5] x", f"{BARE}, , , , , p)", "peepholes"),
    case("an initial state of other constants than 0", "float[2,1,5] x", f"{BARE}, , , i)", "initial state"),
])  # fmt: skip
def test_left_for_its_inputs(inputs: str, body: str, why: str) -> None:
    arrays = {
        "w": weights(1, 1, 24, 5),
        "r": weights(2, 1, 24, 6),
        "n": np.array([2], np.int32),
        "p": weights(3, 1, 18),
        "i": weights(4, 1, 1, 6),
    }
    used = {name: v for name, v in arrays.items() if f" {name}" in body and f" {name}" not in inputs}
    found = both(graph(inputs, "float[t,d,b,k] y, float[d,b,k] h", body, **used))
    assert "LSTM" in found.ops and why in found.reason(next(n.name for n in found.plain.graph.of("LSTM")))


@covers("the batch as first axis (layout)")
def test_the_batch_as_first_axis_is_left() -> None:
    """ONNX Runtime does not run it, so that nothing is compared."""
    body = pair("x", "q") + "y, h = GRU <hidden_size = 6, layout = 1> (q, w, r)"
    explicit = graph(
        "float[1,2,5] x", "float[b,t,d,k] y, float[b,d,k] h", body, w=weights(1, 1, 18, 5), r=weights(2, 1, 18, 6)
    )
    made = translate(explicit, TranslateOptions(**ORIN, dla_rewrites=True))
    assert [node.op_type for node in made.graph.nodes] == ["GRU"] and made.dla is not None
