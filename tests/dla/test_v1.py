"""A network that is not the same function: nothing is written (rule V1)."""

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
from qdq_translator.translation.passes.dla import dense, shapes
from qdq_translator.translation.passes.dla.rewriter import Rewriter
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


def _spoil(graph: Graph, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    values = graph.array(name)
    assert values is not None
    graph.add_initializer(name, change(values.copy()))


def _spoilt_read(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """As `translator._read`, with the weight of the network's last Conv changed: a fault outside the rewrites."""
    read = translator._read

    def spoilt(*asked: Any, **named: Any) -> Any:
        found = read(*asked, **named)
        if not named.get("before"):
            _spoil(found.graph, found.graph.of("Conv")[-1].input(1), change)
        return found

    return spoilt


def _wrong_factor(self: Rewriter, source: str, target: str, channels: int, by: Any, *rest: Any) -> Node:
    return SCALE_LAYER(self, source, target, channels, by * 1.01, *rest)


def _wrong_weight_in_a_region(rewriter: Rewriter, node: Node, *given: Any) -> None:
    CONVERT(rewriter, node, *given)
    if node.is_op("Conv"):
        _spoil(rewriter.graph, node.inputs[1], lambda values: values + np.float32(0.5))


def _wrong_weight_beside_the_rewrite(rewriter: Rewriter) -> None:
    APPLY(rewriter)
    _spoil(rewriter.graph, "w", lambda values: values[::-1])


SCALE_LAYER, CONVERT, APPLY = Rewriter.scale_layer, dense.convert, shapes.apply
FAULTS = [
    (Rewriter, "scale_layer", _wrong_factor),
    (dense, "convert", _wrong_weight_in_a_region),
    (shapes, "apply", _wrong_weight_beside_the_rewrite),
    (translator, "_read", _spoilt_read(np.negative)),
]


def assert_nothing_is_written(model: onnx.ModelProto) -> None:
    with pytest.raises(UserError, match=r"Nothing is written, .* dB away from the model's, in float; .*rule V1"):
        translate(model, OPTIONS)


@pytest.mark.parametrize(("where", "name", "fault"), FAULTS)
def test_a_fault_is_found(where: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"D4", "D5", "D7", "D9", "D15"} <= {a.rule for a in translate(network(), OPTIONS).rewrites.applied}
    monkeypatch.setattr(where, name, fault)
    assert_nothing_is_written(network())


def test_growth_of_the_weights_is_said() -> None:
    """1024 channels in pairs of another order: a Conv of 1024 x 1024 weights that copies."""
    body = "r = Reshape (x, a)\nt = Transpose <perm = [0, 2, 1, 3, 4]> (r)\nu = Reshape (t, b)\ny = Relu (u)"
    for channels, said in ((1024, True), (16, False)):
        arrays = {"a": ints(1, 2, channels // 2, 2, 2), "b": ints(1, channels, 2, 2)}
        explicit = graph(f"float[1,{channels},2,2] x", "float[b,c,h,w] y", pair("x", "x0") + body, **arrays)
        found = translate(explicit, OPTIONS)
        grown = [d.data for d in found.diagnostics.warnings if d.rule == "D0"]
        assert [row["after"] for row in grown] == ([channels**2] if said else [])


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
    monkeypatch.setattr(translator, "_read", _spoilt_read(lambda values: np.float32(factor) * values))
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
