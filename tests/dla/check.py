"""One check for every rewrite: the same function in ONNX Runtime for several batch sizes, and what the simulated INT8
engine makes of it."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Union

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, Simulated, SimulationOptions, simulate
from qdq_translator.translation.passes.dla import RULES
from qdq_translator.translation.translator import Translation
from tests.explicit_reference import assert_equal_function, random_inputs, run, session
from tests.small_models import model, pair, rounded_at_inputs

ORIN = {"target": "orin-dla", "platform": "jetpack-6.0"}
INFER = {"infer_concat_scales": True, "infer_mul_scales": True, "infer_average_pool_scales": True}
SCALE = 1 / 32
"""A power of two: sums of codes are exact whatever their order, and ties are ties in both engines."""
BATCHES = ("1", "3", "N")
"""Static batch sizes, and one that only the caller knows."""
covers = pytest.mark.covers
"""What a test is about: cases and clauses of the rule's docstring (`test_docstrings.py`)."""


def case(what: Union[int, str, tuple[Union[int, str], ...]], *values: Any, **more: Any) -> Any:
    """A row of a table of `pytest.mark.parametrize` that is about one of these, or about several. more: `id`."""
    return pytest.param(*values, marks=covers(*what) if isinstance(what, tuple) else covers(what), **more)


@dataclasses.dataclass(frozen=True)
class Pair:
    """The same model translated without and with --dla_rewrites."""

    plain: Translation
    rewritten: Translation

    @property
    def ops(self) -> list[str]:
        return [n.op_type for n in self.rewritten.graph.nodes]

    @property
    def rules(self) -> list[str]:
        return [a.rule for a in self.rewritten.rewrites.applied]

    def gpu(self) -> tuple[list[str], list[str]]:
        """Operators for the GPU, before and after."""
        assert self.plain.dla is not None and self.rewritten.dla is not None
        return [v.op for v in self.plain.dla.fallbacks], [v.op for v in self.rewritten.dla.fallbacks]

    def reason(self, node: str) -> str:
        """Why a rule left the node, whether or not a later one took it."""
        rewrites = self.rewritten.rewrites
        left = [row.why for row in rewrites.left(self.rewritten.dla) if row.node == node]
        return left[0] if left else rewrites.reasons[node]


def feed_of(translation: Translation, batch: str, seed: int) -> dict[str, np.ndarray]:
    size = int(batch) if batch != "N" else 5
    made = random_inputs(translation.model, seed)
    if batch != "N":
        return made
    return {name: np.concatenate([x * (1 + 0.1 * i) for i in range(size)]) for name, x in made.items()}


def outputs(translation: Translation, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    return run(translation.model, feed, list(translation.graph.outputs))


def engine(translation: Translation) -> Simulated:
    """The simulated INT8 engine, with every scale applied."""
    precisions = dict.fromkeys(translation.fp16_nodes, "fp16")
    network = ImplicitNetwork(translation.model, dict(translation.cache.scales), precisions, frozenset())
    return simulate(network, placement=rounded_at_inputs(network))


def decibels(
    translation: Translation, feed: dict[str, np.ndarray], fp16: bool = False, sigmoid_fp16: bool = False
) -> float:
    """SQNR of the first output in the simulated engine against the float network; fp16: without any scale."""
    name = next(iter(translation.graph.outputs))
    scales = {} if fp16 else dict(translation.cache.scales)
    precisions = dict.fromkeys([n.name for n in translation.graph.nodes] if fp16 else translation.fp16_nodes, "fp16")
    network = ImplicitNetwork(translation.model, scales, precisions, frozenset())
    simulated = simulate(network, SimulationOptions(fp16=True, sigmoid_fp16=sigmoid_fp16))
    want, got = (run(m, feed, [name])[0].astype(np.float64) for m in (translation.model, simulated.model))
    return float(10 * np.log10(np.sum(want**2) / max(np.sum((want - got) ** 2), 1e-300)))


def milliseconds(found: Pair) -> tuple[float, float]:
    """Estimated, of the layers on the DLA, before and after."""
    costs = found.plain.costs, found.rewritten.costs
    assert costs[0] is not None and costs[1] is not None
    return costs[0].milliseconds or 0.0, costs[1].milliseconds or 0.0


def assert_equal_engines(found: Pair, feed: dict[str, np.ndarray]) -> None:
    """Every tensor that both engines hold as codes has the same bits, and so has what stands for one that is gone; float outputs
    differ by rounding at most."""
    engines = engine(found.plain), engine(found.rewritten)
    held = [
        n for n in engines[0].placement.held if n in engines[1].placement.held and n not in found.plain.graph.inputs
    ]
    moved = [
        (old, new[0])
        for old, new in found.rewritten.rewrites.tensors.items()
        if len(new) == 1
        and old in engines[0].placement.held
        and new[0] in engines[1].placement.held
        and found.plain.tensor_scales.get(old) == found.rewritten.tensor_scales.get(new[0])
    ]
    gone = {*found.plain.graph.inputs, *found.rewritten.rewrites.tensors}
    assert held or moved or not engines[0].placement.held.keys() - gone
    results = []
    for number, simulated in enumerate(engines):
        names = [simulated.read[n] for n in (*held, *(pair[number] for pair in moved))]
        known = {v.name for v in simulated.model.graph.output}
        simulated.model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names) if n not in known)
        results.append(run(simulated.model, feed, [*names, *found.plain.graph.outputs]))
    for name, want, got in zip(held, *results):
        np.testing.assert_array_equal(want.reshape(-1), got.reshape(-1), err_msg=name)
    for (old, _), want, got in zip(moved, *(result[len(held) :] for result in results)):
        # the same values, perhaps in the order of another layout; or a part of them, where nobody wants the rest
        assert got.size <= want.size
        if got.size == want.size:
            np.testing.assert_array_equal(np.sort(want, axis=None), np.sort(got, axis=None), err_msg=old)
    ends = len(held) + len(moved)
    assert_equal_function(results[0][ends:], results[1][ends:], 1e-6)


_KINDS: tuple[Callable[[np.random.Generator, tuple[int, ...]], np.ndarray], ...] = (
    lambda rng, shape: rng.standard_normal(shape) / 3,
    lambda rng, shape: rng.integers(-1, 2, shape),
    lambda rng, shape: rng.standard_normal(shape) * 100,
    lambda rng, shape: rng.standard_normal(shape) * 1e-6,
    lambda rng, shape: np.zeros(shape),
)
"""Shares of an input's range: inside it, at its ends, far beyond it, tiny, zero. The first two are usual ones."""


def proved(plain: Translation, rewritten: Translation, relative: float = 1e-4) -> Translation:
    """`rewritten`, which computes what `plain` does for inputs of every kind; in float, up to the order of sums."""
    assert list(plain.graph.outputs) == list(rewritten.graph.outputs)
    sessions, usual = [session(made.model) for made in (plain, rewritten)], 0.0
    for number, kind in enumerate(_KINDS):
        rng, feed = np.random.default_rng(number), random_inputs(rewritten.model, number)
        for name, values in feed.items():
            if values.dtype.kind == "f":
                reach = 127 * plain.tensor_scales.get(name, 8 / 127)
                feed[name] = (kind(rng, values.shape) * reach).astype(values.dtype)
        for want, got in zip(*(each.run(None, feed) for each in sessions)):
            assert want.shape == got.shape and (np.isfinite(want) == np.isfinite(got)).all()
            want, got = np.nan_to_num(want), np.nan_to_num(got)
            apart, peak = (np.abs(values).max(initial=0.0) for values in (want - got, want))
            usual = max(usual, peak) if number < 2 else usual
            assert apart <= relative * max(usual, peak), (number, apart, peak)
    return rewritten


def both(explicit: onnx.ModelProto, **options: Any) -> Pair:
    """Every rewrite is proved: a rule finds by itself where it must not apply."""
    options = {**ORIN, **options}
    plain, rewritten = (
        translate(explicit, TranslateOptions(**given)) for given in (options, {"dla_rewrites": True, **options})
    )
    found = Pair(plain, proved(plain, rewritten) if rewritten.rewrites.applied else rewritten)
    warned = [str(told) for told in found.rewritten.diagnostics.warnings if told.rule in {m.RULE for m in RULES}]
    assert not warned, warned
    return found


def same(
    explicit: onnx.ModelProto, batch: str = "1", bits: bool = False, relative: float = 1e-5, **options: Any
) -> Pair:
    """Translates both ways; equal outputs within `relative`, and with `bits` equal bits in the simulated engine."""
    found = both(explicit, **options)
    onnx.checker.check_model(found.rewritten.model, full_check=True)
    names = [n.name for n in found.rewritten.graph.nodes]
    assert len(set(names)) == len(names) and all(names)
    tensors = {*found.rewritten.graph.inputs, *found.rewritten.graph.producer, *found.rewritten.graph.initializers}
    for name in found.rewritten.tensor_scales:
        source = found.rewritten.scales[name].origin.source
        assert not source or ", " in source or source in tensors
    for new in found.rewritten.rewrites.tensors.values():
        assert set(new) <= tensors
    for seed in (1, 2):
        feed = feed_of(found.rewritten, batch, seed)
        assert_equal_function(outputs(found.plain, feed), outputs(found.rewritten, feed), relative)
        if bits:
            assert_equal_engines(found, feed)
    return found


def graph(
    inputs: str, outputs: str, body: str, batch: str = "1", opset: int = 17, **arrays: np.ndarray
) -> onnx.ModelProto:
    """A model whose shapes may say {N}; `s` and `z` are scale SCALE and zero point 0 for `pair`."""
    text = f"g ({inputs}) => ({outputs}) {{\n{body}\n}}".replace("{N}", batch)
    constants = {"s": np.float32(SCALE), "z": np.int8(0), **arrays}
    used = {name: values for name, values in constants.items() if name in arrays or "QuantizeLinear" in text}
    return model(text, opset=opset, **used)


def weights(seed: int, *shape: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape)
    return (values / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


__all__ = [
    "BATCHES", "INFER", "ORIN", "SCALE", "Pair", "both", "case", "covers", "decibels", "feed_of", "graph", "ints",
    "milliseconds", "outputs", "pair", "proved", "same", "weights",
]  # fmt: skip
