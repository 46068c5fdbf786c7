"""One bad scale in a network: the sensitivity names the tensor first, and its layers free it (see `bad_scales`)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Mapping

import numpy as np
import onnx
import pytest

from benchmarks import several_causes
from benchmarks.verdict import cases
from e2e_workflow.denoiser import images
from qdq_translator import translate
from qdq_translator.lab.simulate import account as accounts
from qdq_translator.lab.simulate.account import Candidate, Judge, Quality, account
from qdq_translator.lab.simulate.implicit import (
    ImplicitNetwork,
    Simulated,
    SimulationOptions,
    copy_model,
    placement_of,
    simulate,
)
from qdq_translator.lab.simulate.inputs import Samples, input_specs, load_samples, random_samples
from qdq_translator.lab.simulate.run import Session
from qdq_translator.lab.simulate.sensitivity import measure_sensitivity
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from tests import bad_scales
from tests.bad_scales import BODIES, CASES, OPTIONS, Case

pytest.importorskip("onnxruntime")
BUILT = [case for case in CASES if case.tensor]


@pytest.mark.parametrize("case", BUILT, ids=str)
def test_the_bad_tensor_is_named_first_and_freed(case: Case) -> None:
    outcome = bad_scales.run(case)
    assert outcome is not None and outcome.found.ranking[0].tensor == case.tensor
    assert outcome.repaired.sqnr_db > outcome.right.sqnr_db - 1 > outcome.bad.sqnr_db + bad_scales.COSTS_DB
    readers = {"one reader": 1, "residual": 2, "SiLU": 2, "behind a Relu": 1, "graph output": 1}
    assert len(outcome.found.layers) == readers.get(case.kind, 3 if case.source == "fork of three" else 2)


def test_at_least_29_of_30(zoo: Path) -> None:
    assert len(CASES) == 30
    outcomes = [bad_scales.run(case) for case in CASES if not case.tensor]
    recovered = sum(outcome is not None and outcome.is_recovered for outcome in outcomes)
    assert recovered + len(BUILT) >= 29  # those that are built here: the test before


def test_a_reader_above_int8_already_is_not_named() -> None:
    network = bad_scales._built(BODIES["fork"])
    spoilt = dataclasses.replace(
        network, scales={**network.scales, "h": network.scales["h"] / 8}, precisions={"c1": "fp16"}
    )
    found, _ = measure_sensitivity(Judge(spoilt, OPTIONS, bad_scales._samples(network)), 300)
    assert found.ranking[0].tensor == "h" and found.layers == ("c2",)
    assert found.layer_argument == "c1:fp16,c2:fp16"


def test_patterns_of_another_layer_argument_stay() -> None:
    network = dataclasses.replace(bad_scales._built(BODIES["chain"]), precisions={"*": "fp16", "c1": "int8"})
    found, _ = measure_sensitivity(Judge(network, OPTIONS, bad_scales._samples(network)), 300)
    assert found.layer_argument == "*:fp16,c1:fp16" and found.layers == ("c1",)


def test_tensors_under_one_scale_go_together_through_relu_and_data_movement() -> None:
    network = bad_scales._built(BODIES["pool"])
    scale = network.scales["h"] / 8
    spoilt = dataclasses.replace(network, scales={**network.scales, "h": scale, "q": scale})
    found, _ = measure_sensitivity(Judge(spoilt, OPTIONS, bad_scales._samples(network)), 300)
    assert found.ranking[0].tensors == ("h", "q") and found.layers == ("c1",)


def test_a_scale_that_is_wrong_in_the_model_is_wrong_in_all_that_follow_from_it() -> None:
    """Neither tensor alone brings anything back; the account has both."""
    network = bad_scales._built(BODIES["tanh"].replace("Tanh(b)", "Elu(b)"))
    origins = {name: {"rule": "Q1", "node": "", "source": ""} for name in network.scales}
    origins["b"] = {"rule": "S8", "node": "r1", "source": "t"}
    scales = {**network.scales, "b": network.scales["b"] / 16, "t": network.scales["t"] / 16}
    spoilt = dataclasses.replace(network, scales=scales, config={"scale_origins": origins})
    samples = bad_scales._samples(network)
    found, _ = measure_sensitivity(Judge(spoilt, OPTIONS, samples), 300)
    assert {row.tensors for row in found.ranking[:2]} == {("b",), ("t",)} and set(found.layers) == {"r1", "ct"}
    together = found.chosen[-1].sqnr_db
    assert max(row.sqnr_db for row in found.ranking[:2]) < together - 6


def test_weights_that_the_engine_rounds_badly_are_candidates() -> None:
    """One large number in a channel: TensorRT's scale leaves the rest of it few codes."""
    network = bad_scales._built(BODIES["chain"])
    model = onnx.ModelProto.FromString(network.model.SerializeToString())
    tensor = next(t for t in model.graph.initializer if t.name == "k9")
    weight = onnx.numpy_helper.to_array(tensor).copy()
    weight[:, 0, 0, 0] = 400.0  # behind a channel that is always zero
    tensor.CopyFrom(onnx.numpy_helper.from_array(weight, "k9"))
    bias = np.zeros(8, np.float32)
    bias[0] = -100.0
    model.graph.initializer.append(onnx.numpy_helper.from_array(bias, "b1"))
    next(n for n in model.graph.node if n.name == "c1").input.append("b1")
    spoilt = bad_scales._calibrated(dataclasses.replace(network, model=model))
    found, _ = measure_sensitivity(Judge(spoilt, OPTIONS, bad_scales._samples(spoilt)), 300)
    assert found.ranking[0].tensor == "weights of ct" and found.layers == ("ct",)
    assert found.chosen[0].sqnr_db > found.baseline_db + 10


def test_what_a_time_limit_cuts_off_is_counted() -> None:
    network = bad_scales._built(BODIES["residual"])
    late, _ = measure_sensitivity(Judge(network, OPTIONS, bad_scales._samples(network)), 0)
    held = simulate(network, OPTIONS).placement.held
    assert late.ranking == late.chosen == () and late.candidates_left_out >= len(held) and late.layer_argument == ""


def _whole(judge: Judge, base: Simulated, candidate: Candidate) -> Quality:
    """Without segments: a simulation of its own."""
    held = {name: scale for name, scale in base.placement.held.items() if name not in candidate.tensors}
    weights = base.placement.weights - set(candidate.weights)
    return judge.of(judge.simulated({}, dataclasses.replace(base.placement, held=held, weights=weights)))


@pytest.mark.parametrize("rounding", ["even", "away"])
@pytest.mark.parametrize("body", ["residual", "two silus", "gate", "pool", "output"])
def test_what_is_reused_changes_no_number(body: str, rounding: str) -> None:
    network = bad_scales._built(BODIES[body])
    options = SimulationOptions(rounding=rounding, fuse=False, sigmoid_fp16=body == "gate")
    _hold_each_candidate(network, options, bad_scales._samples(network))


def test_what_is_reused_changes_no_number_in_half_precision() -> None:
    network = bad_scales._built(BODIES["residual"])
    half = onnx.ModelProto.FromString(network.model.SerializeToString())
    for tensor in half.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), tensor.name))
    for value in (*half.graph.input, *half.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    samples = random_samples(input_specs(half, {}), {}, 2, 0)
    _hold_each_candidate(dataclasses.replace(network, model=half), OPTIONS, samples)


def _hold_each_candidate(network: ImplicitNetwork, options: SimulationOptions, samples: Samples) -> None:
    graph = Graph.from_model(copy_model(network.model))
    judge = Judge(network, options, samples, None, TensorTypes(graph))
    base = judge.simulated({})
    candidates = list(accounts.components(graph, base.placement, network))
    candidates += [Candidate("", (), (n,), ((n, i),)) for n, i in sorted(base.placement.weights)]
    found = judge.without(base, candidates)
    assert len({quality.sqnr_db for quality in found}) > 3
    for candidate, quality in zip(candidates, found):
        whole = _whole(judge, base, candidate)
        assert (quality.sqnr_db, quality.cosine) == (whole.sqnr_db, whole.cosine), candidate


DEEP = 80
"""Layers, more than the account can try one by one."""


def _chain(layers: int) -> ImplicitNetwork:
    names = ["x", *(f"t{i}" for i in range(layers - 1)), "y"]
    body = " ".join(f"[c{i}] {b} = {bad_scales.C1}({a}, w{i})" for i, (a, b) in enumerate(zip(names, names[1:])))
    return bad_scales._built(body)


@pytest.mark.parametrize(("layers", "joined"), [(20, False), (DEEP, True)])
def test_an_account_takes_eight_passes_of_the_network(
    layers: int, joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the layers that ONNX Runtime computes: parts of the network, whose nodes are counted as often as they run."""
    network = _chain(layers)
    names = sorted(n for n in network.scales if n not in ("x", "y"))
    planted = names[:: len(names) // 3][:3]
    spoilt = dataclasses.replace(network, scales={**network.scales, **{n: network.scales[n] / 8 for n in planted}})
    samples = random_samples(input_specs(network.model, {}), {}, 16, 0)
    computed = 0
    original = Session.run

    def counting(self: Session, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        nonlocal computed
        computed += self.convs
        return original(self, feed)

    made = Session.__init__

    def making(self: Session, model: onnx.ModelProto, *more: Any, **options: Any) -> None:
        made(self, model, *more, **options)
        self.convs = sum(node.op_type == "Conv" for node in model.graph.node)

    monkeypatch.setattr(Session, "__init__", making)
    monkeypatch.setattr(Session, "run", counting)
    judge = Judge(spoilt, OPTIONS, samples, None, TensorTypes(Graph.from_model(copy_model(network.model))))
    found = account(judge)
    assert computed / (layers * samples.runs) == pytest.approx(found.passes, rel=0.05)
    assert computed <= accounts.PASSES * layers * samples.runs and found.passes <= accounts.PASSES
    assert any(entry.members > 1 for entry in found.entries) == joined
    assert {entry.candidate.tensors for entry in found.entries[:3]} == {(name,) for name in planted}
    assert sum(entry.members for entry in found.entries) == 2 * layers + 1


def test_the_account_adds_up() -> None:
    """Of the trained networks: the sum of the noise that each rounding adds alone against the whole simulation, within 10% or with the
    remainder shown."""
    folder = Path(images.__file__).parents[1] / "detector"
    network = ImplicitNetwork.of(translate(folder / "detector_qat.onnx", as_is=True))
    samples = load_samples(folder / "samples.npz", input_specs(network.model, {}), 4)
    options = SimulationOptions()
    judge = Judge(network, options, samples, None, TensorTypes(Graph.from_model(copy_model(network.model))))
    found = account(judge)
    placement = placement_of(network, options)
    tensors = {name for entry in found.entries for name in entry.candidate.tensors}
    weights = {place for entry in found.entries for place in entry.candidate.weights}
    assert tensors == set(placement.held) and weights == placement.weights
    assert all(entry.noise >= 0 for entry in found.entries)
    assert found.total == pytest.approx(found.whole * (1 - found.remainder)) and abs(found.remainder) < 0.1


def test_several_bad_scales_at_once(tmp_path: Path) -> None:
    """Freeing one alone gains nothing; the account has them all (`benchmarks.several_causes` has sixteen cases)."""
    case = next(case for case in cases(tmp_path) if case.name == "glyphs")
    (outcome,) = several_causes.outcomes(case, (4,))
    assert len(outcome.planted) == 4 and outcome.bad < outcome.right - 10
    assert outcome.is_recovered and outcome.named == 4
    assert {n for row in outcome.found.ranking[:4] for n in row.tensors} >= set(outcome.planted)


def test_gates_in_half_precision_are_no_part_of_the_account() -> None:
    """Their scales are not applied."""
    network = bad_scales._built(BODIES["gate"])
    judge = Judge(network, SimulationOptions(sigmoid_fp16=True), bad_scales._samples(network))
    found = account(judge)
    placement = judge.simulated({}).placement
    tensors = {name for entry in found.entries for name in entry.candidate.tensors}
    assert tensors == placement.held.keys() - {"s"}
    shares = found.candidates(placement.held)
    assert all(set(candidate.tensors) <= placement.held.keys() for candidate, _ in shares)
    assert shares == sorted(shares, key=lambda pair: -pair[1])
