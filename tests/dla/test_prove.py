"""A rewrite that is not the same function: the tests' oracle (`prove`) names it, and nothing is written (rule V1)."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.lab.simulate import run
from qdq_translator.lab.simulate.implicit import copy_model
from qdq_translator.translation import translator
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.passes.dla import dense, formulas, max_pool, shapes, spatial_mean
from qdq_translator.translation.passes.dla.rewriter import Rewriter, Row
from tests.dla import prove
from tests.dla.check import ORIN, graph, ints, pair, weights
from tests.explicit_reference import random_inputs


def network() -> onnx.ModelProto:
    """Something for D1, D4, D5, D6, D7 (twice), D9 and D15, with quantizers between."""
    body = pair("x", "q") + (
        "c = Conv (q, w)\nh = HardSwish (c)\n"
        + pair("h", "p")
        + "n = Neg (p)\nl = MaxPool <kernel_shape = [9, 9], pads = [4, 4, 4, 4]> (n)\ng = HardSigmoid (l)\n"
        "sh = Shape (g)\nt = Identity (sh)\nr = Reshape (g, t)\n"
        "m = GlobalAveragePool (r)\nf = Flatten (m)\ny = Gemm <transB = 1> (f, v)"
    )
    return graph("float[N,2,16,16] x", "float[N,3] y", body, w=weights(1, 4, 2, 1, 1), v=weights(2, 3, 4))


OPTIONS = TranslateOptions(**ORIN, dla_rewrites=True)


def faults(model: onnx.ModelProto) -> dict[str, list[str]]:
    """Rule -> the nodes whose rewrites are refuted."""
    found: dict[str, list[str]] = {}
    for row in prove.refuted(model, OPTIONS)[1]:
        found.setdefault(row.rule, []).extend(row.nodes)
    return found


def assert_nothing_is_written(model: onnx.ModelProto) -> None:
    with pytest.raises(UserError, match=r"Nothing is written, .* dB away from the model's, in float; .*rule V1"):
        translate(model, OPTIONS)


def test_everything_is_proved() -> None:
    model = network()
    found = prove.proved(model, OPTIONS)
    assert {"D4", "D5", "D7", "D9", "D15"} <= {a.rule for a in found.rewrites.applied}
    without = translate(model, OPTIONS)
    assert found.model.SerializeToString() == without.model.SerializeToString()
    assert found.cache.scales == without.cache.scales


def _wider_clip(original: Callable[..., str]) -> Callable[..., str]:
    """Right for every input in the range of its tensor, wrong beyond it."""

    def clip(row: Row, what: str, bounds: dict[str, float]) -> str:
        return original(row, what, {**bounds, "max": 20 * bounds["max"]})

    return clip


def test_a_wrong_rewrite_is_named_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulas, "_clipped", _wider_clip(formulas._clipped))
    model = network()
    found = faults(model)
    assert list(found) == ["D7"] and sorted(found["D7"]) == ["HardSigmoid_g", "HardSwish_h"]


@pytest.mark.parametrize(
    ("rule", "module", "name", "broken"),
    [
        ("D4", spatial_mean, "steps", lambda _: ((8, 0),)),  # a mean of one quarter of the places
        ("D15", max_pool, "_axis", lambda kernel, begin, end, count: [(5, 2, 2), (5, 2, 2)][:count][::-1]),
    ],
)
def test_only_what_differs_is_found(
    monkeypatch: pytest.MonkeyPatch, rule: str, module: Any, name: str, broken: Callable[..., Any]
) -> None:
    """The wrong mean is found; the MaxPool written in another way is the same function."""
    monkeypatch.setattr(module, name, broken)
    model = network()
    assert list(faults(model)) == (["D4"] if rule == "D4" else [])
    if rule == "D15":
        translate(model, OPTIONS)


@pytest.mark.parametrize("factor", [1.01, 1.001])
def test_a_wrong_factor_of_a_thousandth_is_found(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    original = Rewriter.scale_layer

    def scaled(self: Rewriter, source: str, target: str, channels: int, by: Any, *rest: Any) -> Node:
        return original(self, source, target, channels, by * factor, *rest)

    monkeypatch.setattr(Rewriter, "scale_layer", scaled)
    model = network()
    assert next(iter(faults(model))) == "D7"  # the first stage with a fault
    if factor == 1.01:  # rule V1: more than 60 dB are another order of sums
        assert_nothing_is_written(model)


def test_a_wrong_weight_in_a_region_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = dense.convert

    def convert(rewriter: Rewriter, node: Node, inputs: list[str], kernel: tuple[int, int]) -> None:
        original(rewriter, node, inputs, kernel)
        if node.is_op("Conv"):
            values = rewriter.graph.array(node.inputs[1])
            assert values is not None
            wrong = values.copy()
            wrong[0, 0] += 0.5
            rewriter.graph.set_inputs(node, [node.inputs[0], rewriter.constant("wrong", wrong), *node.inputs[2:]])

    monkeypatch.setattr(dense, "convert", convert)
    model = network()
    assert "Gemm_y" in faults(model)["D5"]
    assert_nothing_is_written(model)


def test_a_wrong_weight_beside_the_rewrite_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = shapes.apply

    def apply(rewriter: Rewriter) -> None:
        original(rewriter)
        values = rewriter.graph.array("w")
        assert values is not None
        rewriter.graph.add_initializer("w", values[::-1].copy())

    monkeypatch.setattr(shapes, "apply", apply)
    body = pair("x", "q") + (
        "c = Conv (q, w)\nsh = Shape (c)\nn = Slice (sh, zero, one)\ns2 = Concat <axis = 0> (n, minus)\n"
        "r = Reshape (c, s2)\ny = Relu (r)"
    )
    arrays = {"zero": ints(0), "one": ints(1), "minus": ints(-1), "w": weights(1, 4, 2, 1, 1)}
    model = graph("float[2,2,4,4] x", "float[2,64] y", body, **arrays)
    assert "D1" in faults(model)
    assert_nothing_is_written(model)


@pytest.mark.parametrize("sizes", ["Identity", "Abs"])
def test_a_piece_does_not_grow_with_what_stands_before_it(monkeypatch: pytest.MonkeyPatch, sizes: str) -> None:
    """Sizes that every block asks for anew: known from those of the input, or (through an Abs) only when the network runs. Each
    piece is its block alone, however deep the network."""
    largest = []
    for depth in (3, 9):
        lines, last = [pair("x", "r0")], "r0"
        for n in range(depth):
            lines += [f"c{n} = Sigmoid ({last})\nb{n} = Shape ({last})\nt{n} = Gather (b{n}, turned)"]
            lines += [f"a{n} = {sizes} (t{n})\nr{n + 1} = Reshape (c{n}, a{n})"]
            last = f"r{n + 1}"
        body = "\n".join([*lines, f"y = Relu ({last})"])
        model = graph("float[1,4,6,8] x", "float[1,4,6,8] y", body, turned=ints(0, 2, 3, 1))
        counts: list[int] = []
        session = prove._session

        def counting(half: Any, *more: Any, counts: list[int] = counts, session: Any = session) -> Any:
            counts.append(len(half.nodes))
            return session(half, *more)

        with monkeypatch.context() as patch:
            patch.setattr(prove, "_session", counting)
            found = prove.proved(model, OPTIONS)
        assert "D1" in {a.rule for a in found.rewrites.applied}
        largest.append(max(counts))
    assert largest[0] == largest[1] < 6


def test_growth_of_the_weights_is_said() -> None:
    """1024 channels in pairs of another order: a Conv of 1024 x 1024 weights that copies."""
    body = "r = Reshape (x, a)\nt = Transpose <perm = [0, 2, 1, 3, 4]> (r)\nu = Reshape (t, b)\ny = Relu (u)"
    for channels, said in ((1024, True), (16, False)):
        arrays = {"a": ints(1, 2, channels // 2, 2, 2), "b": ints(1, channels, 2, 2)}
        explicit = graph(f"float[1,{channels},2,2] x", "float[b,c,h,w] y", pair("x", "x0") + body, **arrays)
        found = prove.proved(explicit, OPTIONS)
        grown = [d.data for d in found.diagnostics.warnings if d.rule == "D0"]
        assert [row["after"] for row in grown] == ([channels**2] if said else [])


def test_the_whole_network_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault outside the rewrites, which no piece of them shows."""
    read = translator._read

    def spoilt(*asked: Any, **named: Any) -> Any:
        found = read(*asked, **named)
        if named.get("before"):
            return found
        name = found.graph.of("Conv")[-1].input(1)
        found.graph.add_initializer(name, -found.graph.array(name))
        return found

    monkeypatch.setattr(translator, "_read", spoilt)
    assert_nothing_is_written(network())


@pytest.mark.parametrize(("factor", "refused"), [(1.0, False), (1.004, True)])
def test_the_order_of_a_sum_that_the_network_amplifies_is_no_fault(
    factor: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x -> 4(x - xx) doubles an error at each of 17 steps: a last bit of the mean (35 dB; last bits of the weights: 38), weights wrong by
    0.4%, which is seen at the Conv (2 dB at the output)."""
    step = "s{0} = Mul (x{0}, x{0})\nd{0} = Sub (x{0}, s{0})\ne{0} = Add (d{0}, d{0})\nx{1} = Add (e{0}, e{0})\n"
    body = pair("x", "q") + "c = Conv (q, w)\na = GlobalAveragePool (c)\nx0 = Sigmoid (a)\n"
    body += "".join(step.format(number, number + 1) for number in range(17)) + "y = Identity (x17)"
    model = graph("float[1,8,27,29] x", "float[b,c,h,w] y", body, w=40 * weights(1, 50, 8, 1, 1))
    read = translator._read

    def spoilt(*asked: Any, **named: Any) -> Any:
        found = read(*asked, **named)
        if named.get("before"):
            return found
        name = found.graph.of("Conv")[-1].input(1)
        found.graph.add_initializer(name, np.float32(factor) * found.graph.array(name))
        return found

    monkeypatch.setattr(translator, "_read", spoilt)
    if refused:
        assert_nothing_is_written(model)
    else:
        translate(model, OPTIONS)


def test_slices_compute_what_a_session_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bit, with a node in every slice; weights behind a DequantizeLinear are in the slice of their reader."""
    body = "e = DequantizeLinear (codes, step)\nf = DequantizeLinear (codes, half)\nc = Conv (x, e)\nd = Conv (c, f)\ny = Relu (d)"
    arrays = {"codes": np.arange(-8, 8, dtype=np.int8).reshape(4, 4, 1, 1)}
    arrays.update(step=np.array(0.25, np.float32), half=np.array(0.125, np.float32))
    model = graph("float[2,4,6,6] x", "float[2,4,6,6] y", body, **arrays)
    feed = random_inputs(model, 1)
    wanted = run.Session(model, "whole", ["c", "y"]).run(feed)
    order = [node.name or node.outputs[0] for node in run._constants_late(Graph.from_model(copy_model(model)))]
    assert [order.index(a) < order.index(b) for a, b in (("e", "c"), ("c", "f"), ("f", "d"))] == [True] * 3
    for size in (1, 2**20):
        monkeypatch.setattr(run, "_SLICE", size)
        whole = Graph.from_model(copy_model(model))
        sliced = run.Sliced(whole, TensorTypes(whole), "slices", ["c", "y"])
        assert len(sliced._slices) == (5 if size == 1 else 1)
        for _ in range(2):
            found = dict(sliced.run(feed))
            assert {name: values.tobytes() for name, values in found.items()} == {
                name: values.tobytes() for name, values in wanted.items()
            }
