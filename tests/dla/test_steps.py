"""Rule F12: what the tensors of rewrites cost in precision, from ranges alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from qdq_translator import TranslateOptions, Translation
from qdq_translator.core.errors import UserError
from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla import hard_activations
from qdq_translator.passes.dla.rewriter import Rewriter, Row
from qdq_translator.planning import steps
from qdq_translator.planning.decision import Decision
from qdq_translator.scales.network import Network
from qdq_translator.workflows import translator
from tests.dla.check import ORIN, SCALE, both, decibels, feed_of, graph, pair, weights

X, Y = "float[1,4,8,8] x", "float[b,c,h,w] y"
END = "\n" + pair("m", "p") + "y = Relu (p)"


def of(line: str, scale: float = SCALE, opset: int = 17, **arrays: np.ndarray):  # type: ignore[no-untyped-def]
    return graph(X, Y, f"{pair('x', 'q')}m = {line}{END}", opset=opset, s=np.float32(scale), **arrays)


def _from_bound(rewriter: Rewriter, node: Node, channels: int) -> None:
    """A Clip as it was rewritten once: `a + Clip(x - a, 0, b - a)`, whatever x holds."""
    low, high = operators.clip_bounds(node, rewriter.graph.array)
    assert low is not None and high is not None
    row, source = Row(rewriter, node), node.inputs[0]
    factors = hard_activations._rectify(row, "from_bound", channels, 1.0, high - low, -low)
    row.scale("back", channels, 1.0, low)
    row.put("D7")
    for layer, factor in zip(row.nodes, factors):
        reach = factor * (high - low) / 127
        rewriter.derive("D7", layer.outputs[0], source, layer, 0.0, reach, needs=[node.outputs[0]], note="")


@pytest.mark.parametrize(("low", "left"), [(-3000.0, True), (-100.0, False), (-3.0, False)])
def test_a_form_that_loses_in_fp16_too_is_left_out(low: float, left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of 3000 / 1024 in FP16 where x has one of 1 / 32."""
    monkeypatch.setitem(hard_activations._CASES, "Clip", _from_bound)
    found = both(of("Clip (q, low, high)", low=np.float32(low), high=np.float32(2.5)), platform="jetpack-6.2")
    assert ("D7" in found.rules) != left
    assert "m_from_bound_clipped" not in found.rewritten.scales or low == -3
    if left:
        assert "(rule F12)" in found.reason("Clip_m") and "dB" in found.reason("Clip_m")
        said = [d for d in found.rewritten.diagnostics if d.rule == "D7" and "left out" in d.message]
        assert len(said) == 1 and said[0].data["nodes"] == ["Clip_m"]
        assert (
            "D7"
            in both(of("Clip (q, low, high)", low=np.float32(low), high=np.float32(2.5)), dla_rewrites="force").rules
        )


@pytest.mark.parametrize("op", ["Elu", "Selu", "Celu", "Softsign", "HardSwish", "Mish"])
@pytest.mark.parametrize("scale", [0.3, 1 / 127])
def test_no_rewrite_loses_more_than_it_may(op: str, scale: float) -> None:
    """What the interval says bounds what the simulated engine loses, the tensors that got no scale in FP16."""
    found = both(of(f"{op} (q)", scale, 18), platform="jetpack-6.2")
    assert "D7" in found.rules
    feed = feed_of(found.rewritten, "1", 1)
    largest = max(float(np.abs(values).max()) for values in feed.values())
    feed = {name: values * np.float32(120 * scale / largest) for name, values in feed.items()}
    plain, rewritten = decibels(found.plain, feed), decibels(found.rewritten, feed)
    assert rewritten > plain - steps.MOST - 1


def test_what_would_cost_too_much_is_fp16() -> None:
    """Elu of a tensor within 0.127: the steps of what is between 0 and 1 are 1/126."""
    found = both(of("Elu (q)", 0.001), platform="jetpack-6.2").rewritten
    rows = {row.name: row for row in found.plan}
    assert rows["Elu_m_exponential"].precision == "fp16" and "m_exponential" not in found.scales
    assert "(rule F12)" in " ".join(str(row) for row in found.plan)
    wide = both(of("Elu (q)", SCALE), platform="jetpack-6.2").rewritten
    assert "m_exponential" in wide.scales


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Mean (q, q)", 2.2),  # 10 log10(1 + (2 s / 2)^2 / (2 (s / 2)^2 + s^2))
        ("HardSigmoid <alpha = 0.25> (q)", 2.8),
    ],
)
def test_figures(line: str, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = []
    original = translator._conclude

    def conclude(network: Network, decision: Decision, *more: object, **named: object) -> Translation:
        lost.extend(result.lost for result in steps._Steps(decision.context, network.applied).results() if result.new)
        return original(network, decision, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(translator, "_conclude", conclude)
    both(of(line), platform="jetpack-6.2")
    assert lost == pytest.approx([expected], abs=0.1)


@pytest.mark.parametrize(("low", "warned"), [(-3000.0, True), (-3.0, False)])
def test_prove_compares_the_planned_precision(low: float, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQNR and INT8 values without the rewrite and with it, also of one that is forced."""
    monkeypatch.setitem(hard_activations._CASES, "Clip", _from_bound)
    body = f"{pair('x', 'q')}m = Clip (q, low, high)\n{pair('m', 'p')}c = Conv (p, w)\n{pair('c', 'd')}y = Conv (d, w)"
    explicit = graph(X, Y, body, low=np.float32(low), high=np.float32(2.5), w=weights(0, 4, 4, 1, 1))
    options = TranslateOptions(**{**ORIN, "dla_rewrites": "force", "prove": True})
    made = translator.translate(explicit, options)
    told = next(d for d in made.diagnostics if "in the planned precision" in d.message)
    assert (told.data["after"] < told.data["before"] - steps.MOST) == warned
    assert (told in made.diagnostics.warnings) == warned and (told.data["equal"] < 0.5) == warned
    assert "on random inputs" in told.message and (told.tensor or "") == told.data["first"]
    if warned:
        with pytest.raises(UserError, match=r"Warnings are errors with --strict .*in the planned precision"):
            translator.translate(explicit, dataclasses.replace(options, strict=True))


def test_prove_compares_on_the_calibration_data(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((4, 4, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    explicit = graph(X, Y, "m = Relu (x)\nn = HardSwish (m)\ny = Relu (n)")
    options = TranslateOptions(**ORIN, dla_rewrites=True, prove=True, calibrate=str(tmp_path / "x.npy"))
    made = translator.translate(explicit, options)
    told = next(d for d in made.diagnostics if "in the planned precision" in d.message)
    assert "on calibration data" in told.message and told.data["after"] > 25


@pytest.mark.parametrize(("bound", "removed"), [(3000.0, True), (9.0, True), (6.0, False), (2.0, False)])
def test_a_clip_that_the_calibration_data_do_not_reach(bound: float, removed: bool, tmp_path: Path) -> None:
    """The data reach 4 of a float model: at a bound of more than 8 no layer is left, else the Clip is rewritten (rule D7)."""
    values = np.random.default_rng(0).uniform(-4, 4, (8, 4, 8, 8)).astype(np.float32)
    values[0, 0, 0, 0] = 4
    np.save(tmp_path / "x.npy", values)
    body = "n = Neg (x)\nm = Clip (n, low, high)\ny = Conv (m, w)"
    arrays = {"low": np.float32(-bound), "high": np.float32(bound), "w": weights(0, 4, 4, 1, 1)}
    float_model = graph(X, Y, body, **arrays)
    options = TranslateOptions(**ORIN, dla_rewrites=True, prove=True, calibrate=str(tmp_path / "x.npy"))
    made = translator.translate(float_model, options)
    found = [note.data["nodes"] for note in made.diagnostics.of_rule("F12")]
    assert found == ([["Clip_m"]] if removed else [])
    assert any(node.is_op("Clip") for node in made.graph.nodes) != removed
    rewritten = [name for one in made.rewrites.applied for name, op in one.before if op == "Clip"]
    assert rewritten == ([] if removed else ["Clip_m"])
    assert decibels(made, {"x": values[:1]}) > 35
