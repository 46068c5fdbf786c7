"""Thirty networks with one bad scale, eight times too small, and whether the sensitivity finds and frees it.

    python -m tests.bad_scales

Small networks are built here, others come from the zoo, where it lies beside the project; all are calibrated on the samples
that they are measured with. The tensor is one with a single INT8 reader, one with several (a residual branch, a fork, SiLU), one that only
a Relu reads, or a graph output. In a network of the zoo it is the first from the middle on whose bad scale costs 6 dB.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Iterator, Optional

import numpy as np

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.formats.layer_precisions import parse_layer_precisions
from qdq_translator.core.formats.verify_rows import Sensitivity
from qdq_translator.lab.simulate.account import Judge, Quality
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, copy_model, simulate
from qdq_translator.lab.simulate.inputs import Samples, input_specs, random_samples
from qdq_translator.lab.simulate.run import Session
from qdq_translator.lab.simulate.sensitivity import measure_sensitivity
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.planning.placement import Placement
from tests.conftest import ZOO
from tests.small_models import model

FACTOR, COSTS_DB, WITHIN_DB, SAMPLES = 8.0, 6.0, 1.5, 4
OPTIONS = SimulationOptions()
COVERAGE = TranslateOptions(
    infer_average_pool_scales=True,
    infer_concat_scales=True,
    infer_mul_scales=True,
    add_unary_ew_scales_for_dla=True,
    asymmetric="widen",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """kind: how the tensor is read. source: a text to build from, or the stem of a model of the zoo."""

    kind: str
    source: str
    tensor: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.tensor or self.source}"


def _net(body: str, inputs: str = "x", channels: str = "8") -> str:
    """`body` between a first and a last layer; {w}, {v} ... are 1x1 or 3x3 weights of 8 channels."""
    return f"net (float[1,8,8,8] x) => (float[1,8,8,8] y) {{ {body} }}"


C1 = "Conv<kernel_shape=[1,1]>"
C3 = "Conv<kernel_shape=[3,3], pads=[1,1,1,1]>"
HEAD = f"[c0] a0 = {C3}(x, k0) [r0] h = Relu(a0)"
TAIL = f"[ct] at = {C3}(t, k9) [rt] ht = Relu(at) [cu] au = {C1}(ht, w9) [ru] hu = Relu(au) [end] y = {C1}(hu, w8)"
BODIES = {
    "chain": f"{HEAD} [c1] b = {C3}(h, k1) [r1] t = Relu(b) {TAIL}",
    "pool": f"{HEAD} [p] q = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(h) [c1] b = {C1}(q, w1) [r1] t = Relu(b) {TAIL}",
    "average": f"{HEAD} [p] q = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(h) [c1] b = {C1}(q, w1) [r1] t = Relu(b) {TAIL}",
    "depthwise": f"{HEAD} [d] b = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=8>(h, d1) [r1] t = Relu(b) {TAIL}",
    "transposed": f"{HEAD} [d] b = ConvTranspose<kernel_shape=[1,1]>(h, w1) [r1] t = Relu(b) {TAIL}",
    "concat": f"{HEAD} [c1] b = {C1}(x, w1) [cat] q = Concat<axis=1>(h, b) [c2] e = {C1}(q, m) [r1] t = Relu(e) {TAIL}",
    "leaky": f"{HEAD} [c1] b = {C3}(h, k1) [r1] t = LeakyRelu(b) {TAIL}",
    "tanh": f"{HEAD} [c1] b = {C3}(h, k1) [r1] t = Tanh(b) {TAIL}",
    "residual": f"{HEAD} [c1] b = {C3}(h, k1) [r1] g = Relu(b) [c2] e = {C3}(g, k2) [add] s = Add(e, h) [r2] t = Relu(s) {TAIL}",
    "downsample": f"{HEAD} [c1] b = {C3}(h, k1) [c2] e = {C1}(h, w2) [add] s = Add(b, e) [r2] t = Relu(s) {TAIL}",
    "fork": f"{HEAD} [c1] b = {C3}(h, k1) [c2] e = {C1}(h, w2) [cat] q = Concat<axis=1>(b, e) [c3] t = {C1}(q, m) {TAIL}",
    "fork of three": f"{HEAD} [c1] b = {C3}(h, k1) [c2] e = {C1}(h, w2) [p] g = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(h)"
    f" [cat] q = Concat<axis=1>(b, e, g) [c3] t = {C1}(q, n) {TAIL}",
    "silu": f"{HEAD} [c1] b = {C3}(h, k1) [sg] g = Sigmoid(b) [mu] t = Mul(b, g) {TAIL}",
    "two silus": f"{HEAD} [c1] b = {C3}(h, k1) [sg] g = Sigmoid(b) [mu] q = Mul(b, g) [c2] e = {C1}(q, w2)"
    f" [sh] f = Sigmoid(e) [mv] t = Mul(e, f) {TAIL}",
    "gate": f"{HEAD} [gp] g = GlobalAveragePool(h) [c1] b = {C1}(g, w1) [sg] s = Sigmoid(b) [mu] t = Mul(h, s) {TAIL}",
    "concat and relu": f"[c0] a0 = {C3}(x, k0) [c1] b = {C1}(x, w1) [cat] q = Concat<axis=1>(a0, b) [r0] h = Relu(q)"
    f" [c2] t = {C1}(h, m) {TAIL}",
    "sum and relu": f"{HEAD} [c1] b = {C3}(h, k1) [sg] e = Tanh(b) [add] q = Add(e, h) [r2] t = Relu(q) {TAIL}",
    "output": f"{HEAD} [c1] b = {C3}(h, k1) [r1] t = Relu(b) {TAIL}",
}
CASES = (
    *(
        Case("one reader", *pair)
        for pair in (
            ("chain", "h"), ("chain", "t"), ("chain", "x"), ("pool", "q"), ("average", "q"), ("depthwise", "h"),
            ("transposed", "t"), ("concat", "q"), ("leaky", "t"), ("tanh", "hu"),
        )
    ),
    *(Case("one reader", stem) for stem in ("resnet18__mo_dla_fp32", "mobilenet_v2__mo_dla_fp32", "unet__ort_s8", "vit__ort_s8")),
    *(Case("residual", "residual", "h"), Case("residual", "downsample", "h")),
    *(Case("residual", stem) for stem in ("resnet18__mo_dla_fp32", "resnet18__ort_s8", "mobilenet_v2__mo_dla_fp32")),
    *(Case("fork", "fork", "h"), Case("fork", "fork of three", "h"), Case("fork", "gate", "h"), Case("fork", "unet__ort_s8")),
    *(Case("SiLU", "silu", "b"), Case("SiLU", "two silus", "e")),
    *(Case("SiLU", stem) for stem in ("yolov5n__ort_s8", "yolov8n__mo_dla_fp32")),
    *(Case("behind a Relu", "concat and relu", "q"), Case("behind a Relu", "sum and relu", "q")),
    Case("graph output", "output", "y"),
)  # fmt: skip


def _built(body: str) -> ImplicitNetwork:
    rng = np.random.default_rng(sum(map(ord, body)))
    shapes = {"k": (8, 8, 3, 3), "w": (8, 8, 1, 1), "d": (8, 1, 3, 3), "m": (8, 16, 1, 1), "n": (8, 24, 1, 1)}
    text = _net(body)
    names = {word.strip("(),") for word in text.replace("(", " ").replace(")", " ").split()}
    constants = {}
    for name in sorted(names):
        if name and name[0] in shapes and (name[1:].isdigit() or name in "mn"):
            shape = shapes[name[0]]
            constants[name] = (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]) / 2)).astype(np.float32)
    made = model(text, **constants)
    graph = Graph.from_model(copy_model(made))
    return _calibrated(ImplicitNetwork(made, dict.fromkeys(graph.tensors(), 1.0), {}, frozenset()))


def _samples(network: ImplicitNetwork) -> Samples:
    return random_samples(input_specs(network.model, {}), {}, SAMPLES, 0)


def _calibrated(network: ImplicitNetwork) -> ImplicitNetwork:
    """With the largest magnitude that the samples give each tensor, unary markers aside."""
    tensors = [name for name in network.scales if name not in network.unary]
    session = Session(network.model, "float", tensors)
    amax = dict.fromkeys(tensors, 0.0)
    for feed in _samples(network):
        for name, values in session.run(feed).items():
            amax[name] = max(amax[name], float(np.abs(values).max()))
    return dataclasses.replace(network, scales={**network.scales, **{n: top / 127 for n, top in amax.items() if top}})


def _of_the_zoo(stem: str) -> ImplicitNetwork:
    return _calibrated(ImplicitNetwork.of(translate(ZOO / "mini" / f"{stem}.onnx", COVERAGE)))


_SHAPES: dict[str, Callable[[list[Node], Placement], bool]] = {
    "one reader": lambda readers, placement: len(readers) == 1,
    "residual": lambda readers, placement: len(readers) == 2 and any(r.is_op("Add") for r in readers),
    "fork": lambda readers, placement: len(readers) == 2,
    "SiLU": lambda readers, placement: sorted(r.op_type for r in readers) == ["Mul", "Sigmoid"],
}


def _tensors(kind: str, network: ImplicitNetwork) -> Iterator[str]:
    """Of a network of the zoo, from the middle on, then from the start."""
    graph = Graph.from_model(copy_model(network.model))
    placement = simulate(network, OPTIONS).placement
    held = [n for n in placement.held if n not in graph.outputs]
    for name in held[len(held) // 2 :] + held[: len(held) // 2]:
        readers = graph.consumers(name)
        if all(r.name in placement.int8 for r in readers) and _SHAPES[kind](readers, placement):
            yield name


@dataclasses.dataclass(frozen=True)
class Outcome:
    tensor: str
    right: Quality
    bad: Quality
    found: Sensitivity
    repaired: Quality

    @property
    def is_named_first(self) -> bool:
        return bool(self.found.ranking) and self.tensor in self.found.ranking[0].tensors

    @property
    def is_recovered(self) -> bool:
        return self.is_named_first and self.repaired.sqnr_db >= self.right.sqnr_db - WITHIN_DB


def run(case: Case) -> Optional[Outcome]:
    """None where no tensor of the network costs `COSTS_DB` with a bad scale."""
    network = _built(BODIES[case.source]) if case.tensor else _of_the_zoo(case.source)
    samples = _samples(network)
    judge = Judge(network, OPTIONS, samples, None, TensorTypes(Graph.from_model(copy_model(network.model))))
    right = judge.of(judge.simulated({}))
    for tensor in [case.tensor] if case.tensor else _tensors(case.kind, network):
        scales = {**network.scales, tensor: network.scales[tensor] / FACTOR}
        spoilt = dataclasses.replace(network, scales=scales)
        judge.network = spoilt
        bad = judge.of(judge.simulated({}))
        if bad.sqnr_db <= right.sqnr_db - COSTS_DB:
            found, _ = measure_sensitivity(Judge(spoilt, OPTIONS, samples), 300)
            repaired = judge.of(judge.simulated(parse_layer_precisions(found.layer_argument)))
            return Outcome(tensor, right, bad, found, repaired)
    return None


def main() -> None:
    recovered = 0
    for case in CASES:
        outcome = run(case)
        if outcome is None:
            print(f"{case!s:<60} no tensor matters")
            continue
        recovered += outcome.is_recovered
        first = outcome.found.ranking[0].tensor if outcome.found.ranking else "-"
        print(
            f"{case!s:<44} {outcome.tensor[-24:]:<24} {outcome.right.sqnr_db:6.1f} -> {outcome.bad.sqnr_db:5.1f} -> "
            f"{outcome.repaired.sqnr_db:5.1f} dB, {len(outcome.found.layers)} layers, "
            f"{'recovered' if outcome.is_recovered else f'NOT: {first} {outcome.is_named_first}'}",
            flush=True,
        )
    print(f"{recovered} of {len(CASES)} recovered")


if __name__ == "__main__":
    main()
