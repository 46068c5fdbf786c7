"""Rule F12: what the tensors of rewrites cost in precision, from ranges alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qdq_translator import TranslateOptions, Translation
from qdq_translator.lab import laboratory
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation import translator
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla import hard_activations
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.planning import steps
from qdq_translator.translation.planning.decision import Decision
from qdq_translator.translation.scales.network import Network
from tests.dla.check import ORIN, SCALE, both, decibels, feed_of, graph, pair

X, Y = "float[1,4,8,8] x", "float[b,c,h,w] y"
END = "\n" + pair("m", "p") + "y = Relu (p)"


def of(line: str, scale: float = SCALE, opset: int = 17, **arrays: np.ndarray):  # type: ignore[no-untyped-def]
    return graph(X, Y, f"{pair('x', 'q')}m = {line}{END}", opset=opset, s=np.float32(scale), **arrays)


def _from_bound(rewriter: Rewriter, node: Node, low: float, high: float) -> None:
    """A Clip as it was rewritten once: `a + Clip(x - a, 0, b - a)`, whatever x holds."""
    hard_activations.FORMULAS["ClipFromBound"].write("D7", rewriter, node, 1.0, low, high - low, 1.0, high - low)


@pytest.mark.parametrize(("low", "left"), [(-3000.0, True), (-100.0, False), (-3.0, False)])
def test_a_form_that_loses_in_fp16_too_is_left_out(low: float, left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of 3000 / 1024 in FP16 where x has one of 1 / 32."""
    monkeypatch.setattr(hard_activations, "_bounded", _from_bound)
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


@pytest.mark.parametrize(("line", "expected"), [
    ("Mean (q, q)", 2.2),  # 10 log10(1 + (2 s / 2)^2 / (2 (s / 2)^2 + s^2))
    ("HardSigmoid <alpha = 0.25> (q)", 2.8),
])  # fmt: skip
def test_figures(line: str, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = []
    original = translator._conclude

    def conclude(network: Network, decision: Decision, *more: object, **named: object) -> Translation:
        lost.extend(result.lost for result in steps._Steps(decision.context, network.applied).results() if result.new)
        return original(network, decision, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(translator, "_conclude", conclude)
    both(of(line), platform="jetpack-6.2")
    assert lost == pytest.approx([expected], abs=0.1)


@pytest.mark.parametrize(("before", "removed"), [("Neg", False), ("Tanh", True)])
@pytest.mark.parametrize("options", [ORIN, {"preset": "gpu"}, {"preset": "dla"}], ids=str)
def test_a_clip_goes_by_known_bounds_and_not_by_what_the_data_reach(
    before: str, removed: bool, options: dict[str, Any], tmp_path: Path
) -> None:
    """Rule F12: the data reach 0.4, the Clip is at 1 and makes the graph output."""
    values = np.random.default_rng(0).uniform(-0.4, 0.4, (8, 4, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    body = f"n = Conv (x, w)\nm = {before} (n)\ny = Clip (m, low, high)"
    arrays = {"low": np.float32(-1), "high": np.float32(1), "w": np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)}
    if "preset" not in options:
        options = {**options, "dla_rewrites": True}
    made = laboratory.translate(
        graph(X, Y, body, **arrays), TranslateOptions(**options, calibrate=str(tmp_path / "x.npy"))
    )
    assert any(node.is_op("Clip") for node in made.graph.nodes) != removed
    found = Session(made.model, "written").run({"x": np.full((1, 4, 8, 8), 5, np.float32)})["y"]
    assert np.allclose(found, np.tanh(5) if removed else -1, atol=1e-5)
